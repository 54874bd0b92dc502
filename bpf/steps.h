/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Where several things happen at one address (a scope ends and another begins), or something rarer than a function's
 * entry or end: inlined code, points, conditional jumps, ends of functions that are jumped to. It uses what
 * hostrange.bpf.c has for the simple cases, and is part of it.
 */
#ifndef HOSTRANGE_STEPS_H
#define HOSTRANGE_STEPS_H

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_RDONLY_PROG);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct hostrange_steps);
} steps_at_sites SEC(".maps");

struct step_walk {
	__u64 stack_pointer;
	__u64 frame_pointer;
	__u64 processor_flags;
	__u64 now_ns;
	__u32 list;
	__u32 opened;
};

/* Whether a conditional jump is taken; conditions are numbered as instructions encode them. */
static __always_inline bool is_taken(__u32 condition, __u64 processor_flags)
{
	bool carry = processor_flags & 1, parity = processor_flags & 4, zero = processor_flags & 0x40;
	bool sign = processor_flags & 0x80, overflow = processor_flags & 0x800, holds;

	if (condition >= HOSTRANGE_ALWAYS)
		return true;
	switch (condition >> 1) {
	case 0:
		holds = overflow;
		break;
	case 1:
		holds = carry;
		break;
	case 2:
		holds = zero;
		break;
	case 3:
		holds = carry || zero;
		break;
	case 4:
		holds = sign;
		break;
	case 5:
		holds = parity;
		break;
	case 6:
		holds = sign != overflow;
		break;
	default:
		holds = zero || sign != overflow;
		break;
	}
	return condition & 1 ? !holds : holds;
}

/* Opens a scope; 1 if it did. It begins when all steps have been taken. */
__noinline int open_in_steps(__u64 cookie, __u64 stack_pointer, __u64 now_ns)
{
	struct stack_walk walk = {.ending = HOSTRANGE_ENDED_ABANDONED};
	__u8 flags = HOSTRANGE_COOKIE_FLAGS(cookie);
	__u32 depth, bits = 0;
	struct thread_state *state;
	struct open_scope *scope;

	state = bpf_task_storage_get(&thread_states, bpf_get_current_task_btf(), 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!state) {
		COUNT(session_counters.no_state);
		return 0;
	}
	if (!state->header.thread_id)
		introduce(state);
	if (on_signal_stack(bpf_get_current_task_btf(), stack_pointer))
		bits |= ON_SIGNAL_STACK;
	if (flags & HOSTRANGE_SITE_TAIL_JUMP)
		bits |= TAILED;
	walk.key = SCOPE_KEY(HOSTRANGE_COOKIE_RANGE(cookie), stack_pointer);
	walk.stack_pointer = stack_pointer;
	walk.now_ns = now_ns;
	if (flags & HOSTRANGE_SITE_REPEATS) {
		bpf_for_each_map_elem(&steps, find_scope, &walk, 0);
		if (walk.found && !(state->open[(walk.found - 1) & DEPTH_MASK].id & TAILED))
			return 0;
		walk.found = 0;
	}
	depth = state->depth;
	if (depth > 0 && flags & HOSTRANGE_SITE_POINT) {
		bits |= POINT;
		/* Begun again where it has not ended. */
		walk.keep_equal = 1;
		bpf_for_each_map_elem(&steps, find_point, &walk, 0);
		if (walk.found)
			end_found(state, &walk, HOSTRANGE_ENDED_ABANDONED);
		walk.found = 0;
		depth = state->depth;
		/* It belongs to the scope around it, and ends with that at the latest. */
		scope = &state->open[(depth - 1) & DEPTH_MASK];
		if (depth > 0 && !(scope->key & OF_MARKER)) {
			stack_pointer = scope->key & STACK_POINTER_MASK;
			if (stack_pointer & HOSTRANGE_FRAME_LEVELS)
				stack_pointer--;
		}
	} else if (flags & HOSTRANGE_SITE_POINT) {
		bits |= POINT;
	} else if (depth > 0) {
		walk.keep_equal = 0;
		bpf_for_each_map_elem(&steps, drop_if_dead, &walk, 0);
		if (state->depth != depth)
			end_tree_if_outermost(state);
	}

	scope = push_scope(state, cookie, stack_pointer, bits);
	if (!scope)
		return 0;
	scope->start_ns = now_ns;
	return 1;
}

__noinline int end_point(__u64 cookie, __u64 now_ns)
{
	struct thread_state *state = current_state();
	struct stack_walk walk = {};

	if (!state)
		return 0;
	walk.key = SCOPE_KEY(HOSTRANGE_COOKIE_RANGE(cookie), 0);
	walk.now_ns = now_ns;
	bpf_for_each_map_elem(&steps, find_point, &walk, 0);
	if (!walk.found)
		return 0;
	end_found(state, &walk, HOSTRANGE_ENDED_BY_EXIT);
	end_tree_if_outermost(state);
	return 0;
}

static long take_step(void *map, __u32 *number, __u32 *value, struct step_walk *walk)
{
	struct hostrange_steps *list = bpf_map_lookup_elem(&steps_at_sites, &walk->list);
	__u64 cookie, stack_pointer;
	__u32 index = *number;

	if (!list || index >= list->count || index >= HOSTRANGE_MOST_STEPS)
		return 1;
	if (!is_taken(list->step[index].condition, walk->processor_flags))
		return 0;
	cookie = list->step[index].cookie;
	stack_pointer = HOSTRANGE_COOKIE_FLAGS(cookie) & HOSTRANGE_SITE_FRAME_POINTER ? walk->frame_pointer
	                                                                              : walk->stack_pointer;
	stack_pointer += HOSTRANGE_COOKIE_STACK_ADJUST(cookie);
	if (list->step[index].opens)
		walk->opened += open_in_steps(cookie, stack_pointer, walk->now_ns);
	else if (HOSTRANGE_COOKIE_FLAGS(cookie) & HOSTRANGE_SITE_POINT)
		end_point(cookie, walk->now_ns);
	else if (current_state())
		exit_slowly(cookie, stack_pointer, walk->now_ns);
	else if (!(HOSTRANGE_COOKIE_FLAGS(cookie) & HOSTRANGE_SITE_QUIET))
		count_orphan(HOSTRANGE_COOKIE_SITE(cookie));
	return 0;
}

/* Lets the scopes that these steps have opened begin now. */
static long begin_now(void *map, __u32 *step, __u32 *value, struct step_walk *walk)
{
	struct thread_state *state = current_state();

	if (!state || *step >= walk->opened || *step >= state->depth)
		return 1;
	state->open[(state->depth - 1 - *step) & DEPTH_MASK].start_ns = walk->now_ns;
	return 0;
}

SEC("uprobe")
int scope_steps(struct pt_regs *ctx)
{
	struct step_walk walk = {.now_ns = bpf_ktime_get_ns()};

	walk.list = bpf_get_attach_cookie(ctx);
	walk.stack_pointer = PT_REGS_SP(ctx);
	walk.frame_pointer = PT_REGS_FP(ctx);
	walk.processor_flags = ctx->eflags;
	bpf_for_each_map_elem(&steps, take_step, &walk, 0);
	if (walk.opened) {
		walk.now_ns = bpf_ktime_get_ns();
		bpf_for_each_map_elem(&steps, begin_now, &walk, 0);
	}
	return 0;
}

#endif
