/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Exits of scopes that had been dropped because their frames looked dead (scopes.h): of fibers
 * whose stacks lie in one memory area. The scope is ended late, by a record of its own. What was entered in the
 * meantime does not lie in it.
 */
#ifndef HOSTRANGE_LATE_ENDS_H
#define HOSTRANGE_LATE_ENDS_H

/* Sends a scope that has ended by an exit, outside of its thread's tree. */
static __always_inline void send_alone(struct thread_state *state, const struct hostrange_scope *scope)
{
	struct hostrange_site_counters *counters = counters_of(scope->site);
	struct {
		struct hostrange_tree_header header;
		struct hostrange_scope scope;
	} record = {.header = state->header, .scope = *scope};

	record.header.part = 0;
	record.header.scope_count = 1;
	record.header.flags = HOSTRANGE_TREE_LAST | HOSTRANGE_TREE_DETACHED;
	if (counters) {
		COUNT(counters->exits);
		__sync_fetch_and_add(&counters->total_ns, scope->duration_ns);
	}
	if (!bpf_ringbuf_output(&trees, &record, sizeof(record), BPF_RB_NO_WAKEUP))
		return;
	COUNT(session_counters.lost_trees);
	if (counters)
		COUNT(counters->lost);
}

/* A scope that ends after it was taken for dead. */
struct late_end {
	__u64 start_ns;
	__u32 site;
	__u32 finished; /* index + 1 of its record, if that has not been sent */
};

/* Finds a scope among those whose record has not been sent. */
static long find_finished(void *map, __u32 *step, __u32 *value, struct late_end *late)
{
	struct thread_state *state = current_state();
	struct hostrange_scope *scope;
	__u32 index = *step;

	if (!state || index >= state->header.scope_count || index >= HOSTRANGE_TREE_SCOPES)
		return 1;
	scope = &state->finished[index];
	if (scope->start_ns != late->start_ns || scope->site != late->site)
		return 0;
	late->finished = index + 1;
	return 1;
}

/* Ends a scope that lies in `open` as one taken for dead. */
__noinline int end_late(__u32 index, __u64 now_ns)
{
	struct hostrange_scope ended = {.id = 1, .ending = HOSTRANGE_ENDED_LATE};
	struct thread_state *state = current_state();
	struct hostrange_site_counters *counters;
	struct late_end late = {};
	struct open_scope *scope;

	if (!state)
		return 0;
	scope = &state->open[index & DEPTH_MASK];
	ended.site = late.site = scope->site;
	ended.start_ns = late.start_ns = scope->start_ns;
	ended.duration_ns = now_ns - scope->start_ns;
	COUNT(session_counters.ended_late);
	counters = counters_of(scope->site);
	if (counters && HOSTRANGE_SCOPE_ENDING(scope->id) == HOSTRANGE_ENDED_BY_EXCEPTION)
		__sync_fetch_and_add(&counters->by_exception, -1);
	else if (counters)
		__sync_fetch_and_add(&counters->abandoned, -1);
	scope->id = 0;
	bpf_for_each_map_elem(&steps, find_finished, &late, 0);
	if (!late.finished) {
		send_alone(state, &ended);
		return 0;
	}
	index = (late.finished - 1) & (HOSTRANGE_TREE_SCOPES - 1);
	state->finished[index].ending = HOSTRANGE_ENDED_BY_EXIT;
	state->finished[index].duration_ns = ended.duration_ns;
	if (counters) {
		COUNT(counters->exits);
		__sync_fetch_and_add(&counters->total_ns, ended.duration_ns);
	}
	return 0;
}

/*
 * Ends the scope of this key that was taken for dead; walk->jumped_to tells then whether it had been jumped to. If
 * walk->found is set, ends those that had left by a tail jump to what has ended now.
 */
static long end_if_taken_for_dead(void *map, __u32 *step, __u32 *value, struct stack_walk *walk)
{
	struct thread_state *state = current_state();
	struct open_scope *scope;
	__u32 index;

	if (!state || *step >= DEAD_PLACES)
		return 1;
	index = INDEX_OF_DEAD_PLACE(*step);
	if (index < state->depth)
		return 1;
	scope = &state->open[index & DEPTH_MASK];
	if (!(scope->id & TAKEN_FOR_DEAD))
		return 0;
	if (scope->start_ns <= probes_changed_ns) {
		/* Not known to be the one: it may have been entered again without a probe. */
		if (recording && scope->key == walk->key)
			COUNT(session_counters.dead_forgotten);
		return 0;
	}
	if (walk->found) {
		if (scope->id & TAILED && SAME_FRAME(scope->key, walk->key))
			end_late(index, walk->now_ns);
		return 0;
	}
	if (scope->key != walk->key)
		return 0;
	walk->found = 1;
	walk->jumped_to = scope->id & JUMPED_TO;
	if (!walk->only_look)
		end_late(index, walk->now_ns);
	return 1;
}

static long forget_one_taken_for_dead(void *map, __u32 *step, __u32 *value, void *none)
{
	struct thread_state *state = current_state();

	if (!state || *step >= HOSTRANGE_MAX_DEPTH)
		return 1;
	state->open[*step & DEPTH_MASK].id &= ~TAKEN_FOR_DEAD;
	return 0;
}

/* A new program: no exit of these will come. */
static __always_inline void forget_those_taken_for_dead(struct thread_state *state)
{
	if (!state->took_for_dead)
		return;
	bpf_for_each_map_elem(&steps, forget_one_taken_for_dead, 0, 0);
	state->took_for_dead = 0;
}

#endif
