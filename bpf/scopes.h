/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The way of a scope from open to committed.
 *
 * A scope is matched by range and stack pointer, never by order: exceptions, longjmp, tail calls, fibers and signal
 * handlers all break the order of entries and exits. The stack grows downwards, so on one stack every live frame has a
 * higher stack pointer (at its entry) than the code that runs now.
 */
#ifndef HOSTRANGE_SCOPES_H
#define HOSTRANGE_SCOPES_H

/* The number of a name, in markers.h. */
__noinline __u32 number_of_name(__u64 address);

/* ---- committing */

struct lost_scopes {
	__u32 count;
};

static long count_lost_scope(void *map, __u32 *step, __u32 *value, struct lost_scopes *lost)
{
	struct thread_state *state = current_state();
	struct hostrange_site_counters *counters;
	__u32 index = *step;

	if (!state || index >= lost->count || index >= HOSTRANGE_TREE_SCOPES)
		return 1;
	if (HOSTRANGE_SCOPE_ENDING(state->finished[index].ending) == HOSTRANGE_ENDED_BY_EXIT) {
		counters = counters_of(state->finished[index].site);
		if (counters)
			COUNT(counters->lost);
	}
	return 0;
}

/*
 * Sends the finished scopes as one record; false if the ring has no room. Nobody is woken: the loader looks often
 * enough, and asking how full the ring is would cost a cache line that the other side keeps writing.
 */
static __always_inline bool send_record(struct thread_state *state, __u32 flags)
{
	__u32 count = state->header.scope_count;

	if (count > HOSTRANGE_TREE_SCOPES)
		return false;
	state->header.flags = flags | (state->parts_lost ? HOSTRANGE_TREE_PARTS_LOST : 0);
	return !bpf_ringbuf_output(&trees, &state->header,
	                           sizeof(state->header) + count * sizeof(struct hostrange_scope), BPF_RB_NO_WAKEUP);
}

static __always_inline void commit(struct thread_state *state, __u32 flags)
{
	struct lost_scopes lost = {.count = state->header.scope_count};

	if (send_record(state, flags)) {
		state->header.part++;
	} else {
		COUNT(session_counters.lost_trees);
		state->parts_lost = 1;
		bpf_for_each_map_elem(&steps, count_lost_scope, &lost, 0);
	}
	state->header.scope_count = 0;
	if (flags & HOSTRANGE_TREE_LAST) {
		state->header.tree++;
		state->header.part = 0;
		state->last_id = 0;
		state->parts_lost = 0;
	}
}

/* ---- closing */

/* Moves open scope `index` to the finished ones. The caller takes it off the stack. */
static __always_inline void finish_scope(struct thread_state *state, __u32 index, __u64 end_ns, __u32 ending)
{
	struct open_scope *scope = &state->open[index & DEPTH_MASK];
	struct hostrange_site_counters *counters = counters_of(scope->site);
	struct hostrange_scope *finished;
	__u64 duration_ns = end_ns - scope->start_ns;
	__u32 slot;

	if (!state->recorded)
		return;
	if (counters) {
		if (ending == HOSTRANGE_ENDED_BY_EXIT) {
			COUNT(counters->exits);
			__sync_fetch_and_add(&counters->total_ns, duration_ns);
		} else if (ending == HOSTRANGE_ENDED_BY_EXCEPTION) {
			COUNT(counters->by_exception);
		} else {
			COUNT(counters->abandoned);
		}
	}
	if (state->header.scope_count >= HOSTRANGE_TREE_SCOPES)
		commit(state, 0);
	slot = state->header.scope_count;
	if (slot >= HOSTRANGE_TREE_SCOPES)
		return;
	finished = &state->finished[slot];
	finished->site = scope->site;
	finished->id = scope->id & SCOPE_NUMBER;
	finished->parent = index ? state->open[(index - 1) & DEPTH_MASK].id & SCOPE_NUMBER : 0;
	finished->ending = ending;
	if (scope->key & OF_MARKER)
		finished->ending |= number_of_name(NAME_OF_MARKER(scope->key)) << 8;
	finished->start_ns = scope->start_ns;
	finished->duration_ns = duration_ns;
	state->header.scope_count = slot + 1;
}

/* ---- slow paths, as call-backs of bpf_for_each_map_elem(): each body is verified once */

struct stack_walk {
	__u64 stack_pointer;
	__u64 key; /* of the scope that is looked for */
	__u64 now_ns;
	__u32 ending; /* of scopes that are dropped */
	__u32 found; /* index + 1 of the scope that was looked for */
	__u32 keep_equal; /* scopes at this very stack pointer are alive */
	__u32 dropped; /* some scope has been dropped */
	__u32 jumped_to; /* the scope that was found had been jumped to */
	__u32 only_look; /* leave it as it is */
};

/*
 * The innermost scope, or the one around it if that is of a point-to-point range, has left by a tail jump: what it has
 * jumped to runs in its frame.
 */
static __always_inline bool has_jumped(struct thread_state *state, __u32 depth)
{
	__u32 id = state->open[(depth - 1) & DEPTH_MASK].id;

	if (id & POINT && depth > 1)
		id = state->open[(depth - 2) & DEPTH_MASK].id;
	return id & TAILED;
}

/*
 * Scopes that are dropped because their frames look dead are remembered at the far end of `open`, which a thread hardly
 * ever fills; a scope that is opened there overwrites them. If the exit of one comes all the same, it was alive, on
 * another stack in the same memory area, and late_ends.h sets right what has been said of it.
 */
#define DEAD_PLACES (HOSTRANGE_MAX_DEPTH / 2)
#define INDEX_OF_DEAD_PLACE(place) (HOSTRANGE_MAX_DEPTH - 1 - (place))

struct dead_place {
	__u64 key;
	__u32 found; /* index in `open`, or 0 */
};

/* A place for a scope of this key: that of an earlier one in the same frame, which then was dead, or a free one. */
static long find_dead_place(void *map, __u32 *step, __u32 *value, struct dead_place *place)
{
	struct thread_state *state = current_state();
	__u32 index = INDEX_OF_DEAD_PLACE(*step);
	struct open_scope *scope;

	if (!state || *step >= DEAD_PLACES || index < state->depth)
		return 1;
	scope = &state->open[index & DEPTH_MASK];
	if (!(scope->id & TAKEN_FOR_DEAD)) {
		if (!place->found)
			place->found = index;
		return 0;
	}
	if (scope->key != place->key)
		return 0;
	place->found = index;
	return 1;
}

static __always_inline void remember_as_dead(struct thread_state *state, struct open_scope *scope, __u32 ending)
{
	struct dead_place place = {.key = scope->key};
	struct open_scope *kept, *around = &state->open[(state->depth - 2) & DEPTH_MASK];
	__u32 jumped_to = 0;

	if (!state->recorded)
		return;
	bpf_for_each_map_elem(&steps, find_dead_place, &place, 0);
	if (!place.found) {
		/* Another one must go: each in its turn. */
		COUNT(session_counters.dead_forgotten);
		state->forgotten = (state->forgotten + 1) & (DEAD_PLACES - 1);
		place.found = INDEX_OF_DEAD_PLACE(state->forgotten);
		if (place.found < state->depth)
			return;
	}
	if (state->depth > 1 && around->id & TAILED && SAME_FRAME(around->key, scope->key))
		jumped_to = JUMPED_TO;
	kept = &state->open[place.found & DEPTH_MASK];
	kept->key = scope->key;
	kept->start_ns = scope->start_ns;
	kept->site = scope->site;
	kept->id = (scope->id & TAILED) | jumped_to | TAKEN_FOR_DEAD | ending;
	state->took_for_dead = 1;
}

/* Drops the innermost scope if the code that runs now, at walk->stack_pointer, proves that its frame is gone. */
static long drop_if_dead(void *map, __u32 *step, __u32 *value, struct stack_walk *walk)
{
	struct thread_state *state = current_state();
	struct open_scope *top;
	__u64 stack_pointer;
	__u32 depth;

	if (!state)
		return 1;
	depth = state->depth;
	if (depth == 0 || depth > HOSTRANGE_MAX_DEPTH)
		return 1;
	top = &state->open[(depth - 1) & DEPTH_MASK];
	/* A signal handler on the alternate stack runs to its end before the thread's own stack goes on, or is jumped
	 * out of. */
	if (top->id & ON_SIGNAL_STACK && !on_signal_stack(bpf_get_current_task_btf(), walk->stack_pointer))
		goto dead;
	stack_pointer = top->key & STACK_POINTER_MASK;
	if (stack_pointer > walk->stack_pointer)
		return 1;
	if (stack_pointer == walk->stack_pointer && walk->keep_equal)
		return 1;
	/* At an entry, a scope of the same frame is alive only if it has just jumped here. If what it jumped to had
	 * scopes of its own, that are dead now, it is dead too. So it is where an exception lands: what it jumped to
	 * would call __cxa_begin_catch from further down. */
	if (SAME_FRAME(stack_pointer, walk->stack_pointer) && has_jumped(state, depth) && !walk->dropped &&
	    walk->ending != HOSTRANGE_ENDED_BY_EXCEPTION)
		return 1;
	if (!same_stack(walk->stack_pointer, stack_pointer)) {
		COUNT(session_counters.other_stack);
		return 1;
	}
	if (!(top->id & POINT))
		remember_as_dead(state, top, walk->ending);
dead:
	finish_scope(state, depth - 1, walk->now_ns, walk->ending);
	state->depth = depth - 1;
	walk->dropped = 1;
	return 0;
}

/* Moves the scopes above walk->found - 1 one place down. */
static long close_gap(void *map, __u32 *step, __u32 *value, struct stack_walk *walk)
{
	struct thread_state *state = current_state();
	__u32 to = walk->found - 1 + *step;

	if (!state || to + 1 >= state->depth || to + 1 >= HOSTRANGE_MAX_DEPTH)
		return 1;
	state->open[to & DEPTH_MASK] = state->open[(to + 1) & DEPTH_MASK];
	return 0;
}

/*
 * Closes scope walk->found - 1 if it has left by a tail jump at this stack pointer: what it jumped to has returned.
 * Then the one below it is in question. Scopes of other stacks may lie above.
 */
static long end_if_tailed(void *map, __u32 *step, __u32 *value, struct stack_walk *walk)
{
	struct thread_state *state = current_state();
	__u32 depth, position = walk->found;
	struct open_scope *scope;

	if (!state)
		return 1;
	depth = state->depth;
	if (position == 0 || position > depth || depth > HOSTRANGE_MAX_DEPTH)
		return 1;
	scope = &state->open[(position - 1) & DEPTH_MASK];
	if (!SAME_FRAME(scope->key, walk->stack_pointer) || !has_jumped(state, position))
		return 1;
	finish_scope(state, position - 1, walk->now_ns,
	             scope->id & POINT ? HOSTRANGE_ENDED_ABANDONED : HOSTRANGE_ENDED_BY_EXIT);
	if (position < depth)
		bpf_for_each_map_elem(&steps, close_gap, walk, 0);
	state->depth = depth - 1;
	walk->found = position - 1;
	return 0;
}

static long find_scope(void *map, __u32 *step, __u32 *value, struct stack_walk *walk)
{
	struct thread_state *state = current_state();
	__u32 index;

	if (!state || *step >= state->depth)
		return 1;
	index = state->depth - 1 - *step;
	if (state->open[index & DEPTH_MASK].key != walk->key)
		return 0;
	walk->found = index + 1;
	return 1;
}

/* The innermost scope of a point-to-point range. With keep_equal, only if no scope of another kind lies in it. */
static long find_point(void *map, __u32 *step, __u32 *value, struct stack_walk *walk)
{
	struct thread_state *state = current_state();
	struct open_scope *scope;
	__u32 index;

	if (!state || *step >= state->depth)
		return 1;
	index = state->depth - 1 - *step;
	scope = &state->open[index & DEPTH_MASK];
	if (!(scope->id & POINT))
		return walk->keep_equal;
	if (scope->key >> 48 != walk->key >> 48)
		return 0;
	walk->found = index + 1;
	return 1;
}

static long abandon_innermost(void *map, __u32 *step, __u32 *value, struct stack_walk *walk)
{
	struct thread_state *state = current_state();
	__u32 depth;

	if (!state)
		return 1;
	depth = state->depth;
	if (depth == 0 || depth > HOSTRANGE_MAX_DEPTH)
		return 1;
	finish_scope(state, depth - 1, walk->now_ns, HOSTRANGE_ENDED_ABANDONED);
	state->depth = depth - 1;
	return 0;
}

/* The outermost scope has ended: the tree is whole. */
static __always_inline void end_tree_if_outermost(struct thread_state *state)
{
	if (state->depth == 0) {
		state->overflow_open = 0;
		if (state->recorded)
			commit(state, HOSTRANGE_TREE_LAST);
	}
}

#endif
