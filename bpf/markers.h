/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What happens at markers (lib/include/hostrange/markers.h). A range marker opens a scope or ends one, in the thread's
 * tree. The others become records of a ring of their own, which trees cannot fill: the loader puts trees and marks
 * together by their times.
 *
 * Arguments are read by the calling convention, since a marker's site is the entry of a function.
 */
#ifndef HOSTRANGE_MARKERS_H
#define HOSTRANGE_MARKERS_H

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1024 * 1024);
} marks SEC(".maps");

/* Numbers of names that have been sent. What falls out is sent again, under another number. */
struct marker_name {
	__u64 program; /* thread_state.program */
	__u64 address;
};
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct marker_name);
	__type(value, __u32);
} marker_names SEC(".maps");

__u32 last_name;

/* Scopes that stand by themselves and are open. */
struct detached_key {
	__u64 token;
	__u64 process_id;
};
struct detached_scope {
	__u64 start_ns;
	__u64 name; /* its address */
	__u32 site;
	__u32 reserved;
};
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct detached_key);
	__type(value, struct detached_scope);
} detached_scopes SEC(".maps");

static __always_inline struct thread_state *introduced_state(void)
{
	struct thread_state *state =
	        bpf_task_storage_get(&thread_states, bpf_get_current_task_btf(), 0, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!state)
		COUNT(session_counters.no_state);
	else if (!state->header.thread_id)
		introduce(state);
	return state;
}

static __always_inline struct hostrange_mark *new_mark(struct thread_state *state, __u32 kind)
{
	struct hostrange_mark *mark = bpf_ringbuf_reserve(&marks, sizeof(*mark), 0);

	if (!mark) {
		COUNT(session_counters.lost_marks);
		return 0;
	}
	mark->time_ns = bpf_ktime_get_ns();
	mark->process_start_ns = state->header.process_start_ns;
	mark->process_id = state->header.process_id;
	mark->thread_id = state->header.thread_id;
	__builtin_memcpy(mark->comm, state->header.comm, sizeof(mark->comm));
	mark->kind = kind;
	mark->flags = 0;
	mark->text_number = 0;
	mark->text_bytes = 0;
	mark->numbers[0] = mark->numbers[1] = mark->numbers[2] = 0;
	return mark;
}

/* Bytes that were read, with the zero byte, or negative. */
static __always_inline long read_text(struct hostrange_mark *mark, __u64 address)
{
	long got = bpf_probe_read_user_str(mark->text, sizeof(mark->text), (void *)address);

	if (got < 0)
		mark->flags |= HOSTRANGE_MARK_UNREADABLE;
	else if (got > 0)
		mark->text_bytes = got - 1;
	return got;
}

/* A text of one piece; a longer one is cut. */
static __always_inline void read_short_text(struct hostrange_mark *mark, __u64 address)
{
	if (read_text(mark, address) == sizeof(mark->text))
		mark->flags |= HOSTRANGE_MARK_CUT;
}

struct text_walk {
	__u64 address;
	__u32 text_number;
	__u32 most_pieces;
};

static long send_piece(void *map, __u32 *step, __u32 *value, struct text_walk *walk)
{
	struct thread_state *state = current_state();
	struct hostrange_mark *mark;
	long got;

	mark = state ? new_mark(state, HOSTRANGE_MARK_TEXT) : 0;
	if (!mark)
		return 1;
	mark->text_number = walk->text_number;
	got = read_text(mark, walk->address);
	walk->address += sizeof(mark->text) - 1;
	if (got == sizeof(mark->text) && *step + 1 >= walk->most_pieces) {
		/* It may end right here. */
		char next = 0;

		if (bpf_probe_read_user(&next, sizeof(next), (void *)walk->address) || next)
			mark->flags |= HOSTRANGE_MARK_CUT;
	}
	bpf_ringbuf_submit(mark, BPF_RB_NO_WAKEUP);
	return got < (long)sizeof(mark->text) || *step + 1 >= walk->most_pieces;
}

static __always_inline void send_text(__u64 address, __u32 text_number, __u32 most_pieces)
{
	struct text_walk walk = {.address = address, .text_number = text_number, .most_pieces = most_pieces};

	bpf_for_each_map_elem(&steps, send_piece, &walk, 0);
}

SEC("uprobe")
int marker(struct pt_regs *ctx)
{
	__u32 kind = bpf_get_attach_cookie(ctx);
	struct thread_state *state = introduced_state();
	struct hostrange_mark *mark;

	if (!state)
		return 0;
	if (kind == HOSTRANGE_MARK_CASE_BEGIN) {
		send_text(PT_REGS_PARM2(ctx), HOSTRANGE_MARK_NODEID, HOSTRANGE_MARK_PIECES);
		send_text(PT_REGS_PARM3(ctx), HOSTRANGE_MARK_OPERATOR, 1);
		send_text(PT_REGS_PARM4(ctx), HOSTRANGE_MARK_BACKEND, 1);
	}
	mark = new_mark(state, kind);
	if (!mark)
		return 0;
	switch (kind) {
	case HOSTRANGE_MARK_CASE_BEGIN:
	case HOSTRANGE_MARK_CASE_END:
		mark->numbers[0] = PT_REGS_PARM1(ctx);
		break;
	case HOSTRANGE_MARK_SESSION_BEGIN:
	case HOSTRANGE_MARK_PHASE_BEGIN:
	case HOSTRANGE_MARK_PHASE_END:
		read_short_text(mark, PT_REGS_PARM1(ctx));
		break;
	case HOSTRANGE_MARK_MEASUREMENT:
		read_short_text(mark, PT_REGS_PARM1(ctx));
		mark->numbers[0] = PT_REGS_PARM2(ctx);
		if (bpf_probe_read_user(&mark->numbers[1], 2 * sizeof(__u64), (void *)PT_REGS_PARM5(ctx)))
			mark->flags |= HOSTRANGE_MARK_UNREADABLE;
		break;
	default:
		break;
	}
	bpf_ringbuf_submit(mark, BPF_RB_NO_WAKEUP);
	if (kind == HOSTRANGE_MARK_PAUSE)
		tell(HOSTRANGE_EVENT_PAUSE, state->header.process_id, state->header.thread_id, 0);
	if (kind == HOSTRANGE_MARK_RESUME)
		tell(HOSTRANGE_EVENT_RESUME, state->header.process_id, state->header.thread_id, 0);
	return 0;
}

/* The number of a range's name; the first time, the name is sent. */
__noinline __u32 number_of_name(__u64 address)
{
	struct thread_state *state = current_state();
	struct marker_name name = {.address = address};
	struct hostrange_mark *mark;
	__u32 *known, number;

	if (!state)
		return HOSTRANGE_MOST_NAMES;
	if (state->name_address == address)
		return state->name_number;
	name.program = state->program;
	known = bpf_map_lookup_elem(&marker_names, &name);
	if (known) {
		state->name_address = address;
		return state->name_number = *known;
	}
	number = __sync_fetch_and_add(&last_name, 1) + 1;
	if (number > HOSTRANGE_MOST_NAMES)
		return HOSTRANGE_MOST_NAMES;
	mark = new_mark(state, HOSTRANGE_MARK_NAME);
	if (!mark)
		return HOSTRANGE_MOST_NAMES; /* asked for again at the next scope */
	mark->numbers[0] = number;
	read_short_text(mark, address);
	bpf_ringbuf_submit(mark, BPF_RB_NO_WAKEUP);
	bpf_map_update_elem(&marker_names, &name, &number, BPF_ANY);
	state->name_address = address;
	return state->name_number = number;
}

__noinline int begin_detached(__u32 site, __u64 name, __u64 token)
{
	struct detached_key key = {.token = token, .process_id = bpf_get_current_pid_tgid() >> 32};
	struct detached_scope scope = {.site = site, .name = name}, *known;
	struct hostrange_site_counters *counters = counters_of(site);

	if (!counters || !recording)
		return 0;
	known = bpf_map_lookup_elem(&detached_scopes, &key);
	if (known) {
		/* The token is in use: what had it before never ended. */
		struct hostrange_site_counters *left = counters_of(known->site);

		if (left)
			COUNT(left->abandoned);
	}
	scope.start_ns = bpf_ktime_get_ns();
	if (bpf_map_update_elem(&detached_scopes, &key, &scope, BPF_ANY))
		COUNT(counters->overflow);
	else
		COUNT(counters->entries);
	return 0;
}

__noinline int end_detached(__u32 site, __u64 token, __u64 now_ns)
{
	struct detached_key key = {.token = token, .process_id = bpf_get_current_pid_tgid() >> 32};
	struct detached_scope *scope = bpf_map_lookup_elem(&detached_scopes, &key), ended;
	struct thread_state *state = current_state();
	struct hostrange_scope finished = {.id = 1};

	if (!state || !scope) {
		count_orphan(site);
		return 0;
	}
	ended = *scope;
	if (bpf_map_delete_elem(&detached_scopes, &key))
		return 0;
	finished.site = ended.site;
	finished.ending = HOSTRANGE_ENDED_BY_EXIT | number_of_name(ended.name) << 8;
	finished.start_ns = ended.start_ns;
	finished.duration_ns = now_ns - ended.start_ns;
	send_alone(state, &finished);
	return 0;
}

SEC("uprobe")
int marker_range_begin(struct pt_regs *ctx)
{
	__u64 cookie = bpf_get_attach_cookie(ctx), stack_pointer = PT_REGS_SP(ctx);
	struct thread_state *state = introduced_state();
	struct open_scope *scope;
	__u32 depth;

	if (!state)
		return 0;
	if (PT_REGS_PARM2(ctx)) {
		begin_detached(HOSTRANGE_COOKIE_SITE(cookie), PT_REGS_PARM1(ctx), PT_REGS_PARM2(ctx));
		return 0;
	}
	depth = state->depth;
	scope = &state->open[(depth - 1) & DEPTH_MASK];
	if (depth > 0 && (scope->key & STACK_POINTER_MASK) <= stack_pointer)
		enter_slowly(stack_pointer);
	scope = push_scope(state, cookie, OF_MARKER | NAME_OF_MARKER(PT_REGS_PARM1(ctx)), 0);
	if (!scope)
		return 0;
	scope->start_ns = bpf_ktime_get_ns();
	return 0;
}

/* Where the innermost scope is not the one that ends. */
__noinline int end_range_slowly(__u64 cookie, __u64 key, __u64 stack_pointer, __u64 now_ns)
{
	struct stack_walk walk = {.ending = HOSTRANGE_ENDED_ABANDONED};
	struct thread_state *state = current_state();

	if (!state)
		return 0;
	walk.stack_pointer = stack_pointer;
	walk.key = key;
	walk.now_ns = now_ns;
	bpf_for_each_map_elem(&steps, drop_if_dead, &walk, 0);
	bpf_for_each_map_elem(&steps, find_scope, &walk, 0);
	if (walk.found)
		end_found(state, &walk, HOSTRANGE_ENDED_BY_EXIT);
	else if (state->overflow_open > 0)
		state->overflow_open--;
	else
		count_orphan(HOSTRANGE_COOKIE_SITE(cookie));
	if (walk.found || walk.dropped)
		end_tree_if_outermost(state);
	return 0;
}

SEC("uprobe")
int marker_range_end(struct pt_regs *ctx)
{
	__u64 now_ns = bpf_ktime_get_ns();
	__u64 cookie = bpf_get_attach_cookie(ctx), key;
	struct thread_state *state = introduced_state();
	struct open_scope *scope;
	__u32 depth;

	if (!state)
		return 0;
	if (PT_REGS_PARM2(ctx)) {
		end_detached(HOSTRANGE_COOKIE_SITE(cookie), PT_REGS_PARM2(ctx), now_ns);
		return 0;
	}
	key = MARKER_KEY(NAME_OF_MARKER(PT_REGS_PARM1(ctx)));
	depth = state->depth;
	scope = &state->open[(depth - 1) & DEPTH_MASK];
	if (depth == 0 || scope->key != key) {
		end_range_slowly(cookie, key, PT_REGS_SP(ctx), now_ns);
		return 0;
	}
	finish_scope(state, depth - 1, now_ns, HOSTRANGE_ENDED_BY_EXIT);
	state->depth = depth - 1;
	end_tree_if_outermost(state);
	return 0;
}

#endif
