/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the calibration measures: for each pair of an entry and an end, a leaf whose probes are of that pair, and an
 * outer function that calls it n times; and the same once more, which nobody probes (the twin). The table at the end
 * has the addresses: struct CalibrationCase in calibration_code.h.
 *
 * The names of entries and ends are those of the enumerators in probe_pairs.h, in the same order.
 */
	.text

.macro BODY turns
	mov	$\turns, %ecx
77:	dec	%ecx
	jne	77b
.endm

/* Code of a leaf. Labels: \name, and at the instruction that ends it \name\()_end; of what it jumps to \name\()_callee,
 * and at the ret of that \name\()_callee_end. */
.macro LEAF name, entry, end
	.p2align 6
\name:
.ifc \entry, optimised_nop
	.byte	0x0f, 0x1f, 0x44, 0x00, 0x00
.endif
.ifc \entry, emulated
	push	%rbx
.endif
.ifc \entry, steps_emulated
	nop
.endif
.ifc \entry, single_step
	mov	%edi, %eax
.endif
.ifc \entry, steps_single_step
	mov	%edi, %eax
.endif
.ifnc \entry, lone_jump
	BODY	60
.endif
.ifc \entry, emulated
	pop	%rbx
.endif
.ifc \end, steps_emulated
\name\()_end:
	nop
	ret
.else
.ifc \end, ret
\name\()_end:
	ret
.else
.ifc \end, uretprobe
\name\()_end:
	ret
.else
.ifc \end, steps_single_step
\name\()_end:
	ret
.else
\name\()_end:
	jmp	\name\()_callee
.endif
.endif
.endif
.endif
	.p2align 6
\name\()_callee:
	push	%rbx
	BODY	20
	pop	%rbx
\name\()_callee_end:
	ret
.endm

/* range_begin and range_end as lib/markers/markers.c has them. */
.macro MARKER_LEAF name
	.p2align 6
\name:
	push	%rbx
	lea	hostrange_calibration_name(%rip), %rdi
	xor	%esi, %esi
	call	\name\()_begin
	BODY	60
	lea	hostrange_calibration_name(%rip), %rdi
	xor	%esi, %esi
	call	\name\()_end
	pop	%rbx
	ret
	.p2align 6
\name\()_begin:
	nop
	.byte	0x0f, 0x1f, 0x44, 0x00, 0x00
	.byte	0x66, 0x2e, 0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00
	ret
	.p2align 6
\name\()_end:
	nop
	.byte	0x0f, 0x1f, 0x44, 0x00, 0x00
	.byte	0x66, 0x2e, 0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00
	ret
.endm

/* void outer(unsigned n) */
.macro OUTER name, leaf
	.p2align 6
\name:
	push	%rbx
	mov	%edi, %ebx
77:	call	\leaf
	dec	%ebx
	jne	77b
	pop	%rbx
\name\()_end:
	ret
.endm

.macro CASE entry, end, entry_number, end_number
	LEAF	.Lleaf_\entry\()_\end, \entry, \end
	OUTER	.Louter_\entry\()_\end, .Lleaf_\entry\()_\end
	LEAF	.Ltwin_leaf_\entry\()_\end, \entry, \end
	OUTER	.Ltwin_\entry\()_\end, .Ltwin_leaf_\entry\()_\end
	.pushsection .data.rel.ro, "aw"
	.quad	\entry_number, \end_number
	.quad	.Lleaf_\entry\()_\end, .Lleaf_\entry\()_\end\()_end
	.quad	.Lleaf_\entry\()_\end\()_callee, .Lleaf_\entry\()_\end\()_callee_end
	.quad	.Louter_\entry\()_\end, .Louter_\entry\()_\end\()_end
	.quad	.Ltwin_\entry\()_\end
	.popsection
.endm

	.section .data.rel.ro, "aw"
	.p2align 3
	.globl	hostrange_calibration_cases
	.hidden	hostrange_calibration_cases
hostrange_calibration_cases:
	.text

.macro FUNCTION_CASES entry, entry_number
	CASE	\entry, ret, \entry_number, 0
	CASE	\entry, uretprobe, \entry_number, 1
	CASE	\entry, tail_jump, \entry_number, 2
	CASE	\entry, callee, \entry_number, 3
	CASE	\entry, jump, \entry_number, 4
	CASE	\entry, steps_single_step, \entry_number, 5
	CASE	\entry, steps_emulated, \entry_number, 6
.endm
	/* First: what others are measured by. */
	FUNCTION_CASES emulated, 1
	FUNCTION_CASES optimised_nop, 0
	FUNCTION_CASES single_step, 2
	CASE	steps_emulated, steps_emulated, 3, 6
	CASE	steps_emulated, steps_single_step, 3, 5
	CASE	steps_single_step, steps_emulated, 4, 6
	CASE	steps_single_step, steps_single_step, 4, 5
	CASE	lone_jump, tail_jump, 5, 2
	CASE	lone_jump, callee, 5, 3

	MARKER_LEAF .Lleaf_marker
	OUTER	.Louter_marker, .Lleaf_marker
	MARKER_LEAF .Ltwin_leaf_marker
	OUTER	.Ltwin_marker, .Ltwin_leaf_marker
	.section .data.rel.ro, "aw"
	.quad	6, 7
	.quad	.Lleaf_marker_begin, .Lleaf_marker_end
	.quad	0, 0
	.quad	.Louter_marker, .Louter_marker_end
	.quad	.Ltwin_marker
	.globl	hostrange_calibration_cases_end
	.hidden	hostrange_calibration_cases_end
hostrange_calibration_cases_end:

	.section .rodata
	.globl	hostrange_calibration_name
	.hidden	hostrange_calibration_name
hostrange_calibration_name:
	.asciz	"calibration"

	.section .note.GNU-stack, "", @progbits
