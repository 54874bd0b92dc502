/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which stack does an address lie on? */
#ifndef HOSTRANGE_STACKS_H
#define HOSTRANGE_STACKS_H

#define VM_GROWSDOWN 0x100ul
/* A main thread's stack has at least so much room to grow into (arch/x86/mm/mmap.c). */
#define STACK_ROOM (128ull << 20)

struct stack_answer {
	__u64 begin, end;
};

static long ask_area(struct task_struct *task, struct vm_area_struct *area, struct stack_answer *answer)
{
	answer->end = area->vm_end;
	answer->begin = area->vm_flags & VM_GROWSDOWN ? area->vm_end - STACK_ROOM : area->vm_start;
	return 0;
}

static __always_inline bool on_signal_stack(struct task_struct *task, __u64 address)
{
	return address - task->sas_ss_sp < task->sas_ss_size;
}

/*
 * The stack pointer and an address are on one stack if both are, or neither is, on the thread's signal stack, and one
 * memory area holds both. Fiber stacks laid side by side in one area without guard pages look like one stack: for them,
 * scopes that are taken for dead are remembered.
 *
 * While another thread changes the memory map the kernel gives no answer. Threads seldom leave their stack, so the last
 * one holds. Before there is any, there is one stack: if not, what is taken for dead is remembered.
 */
static __always_inline bool same_stack(__u64 stack_pointer, __u64 address)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct stack_answer answer = {};
	struct thread_state *state;

	if (stack_pointer == address)
		return true;
	if (on_signal_stack(task, stack_pointer) != on_signal_stack(task, address))
		return false;
	if (!settings.has_find_vma)
		return true;
	state = current_state();
	if (!state)
		return false;
	if (!bpf_find_vma(task, stack_pointer, ask_area, &answer, 0)) {
		if (!on_signal_stack(task, stack_pointer)) {
			state->stack_begin = answer.begin;
			state->stack_end = answer.end;
		}
	} else {
		COUNT(session_counters.stack_unknown);
		if (!state->stack_end)
			return true;
		answer.begin = state->stack_begin;
		answer.end = state->stack_end;
		if (stack_pointer < answer.begin || stack_pointer >= answer.end)
			return false;
	}
	return address >= answer.begin && address < answer.end;
}

#endif
