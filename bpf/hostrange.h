/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the BPF programs and the loader say to each other. Plain C, fixed-width fields, no implicit padding.
 */
#ifndef HOSTRANGE_H
#define HOSTRANGE_H

#include <linux/types.h>

#define HOSTRANGE_MAX_DEPTH 128 /* open scopes of one thread; deeper ones are counted as overflow */
#define HOSTRANGE_TREE_SCOPES 128 /* finished scopes buffered per thread before a part of the tree is committed */

#define HOSTRANGE_COMM_SIZE 16

/* What the loader fixes before the programs are loaded. */
struct hostrange_settings {
	__u32 max_sites;
	__u32 has_find_vma; /* bpf_find_vma(), 5.17 */
	__u32 watch_all; /* tell of every process, watched or not */
	__u32 reserved;
};

/*
 * The attach cookie of a site: all that the programs need to know of it, so that they look nothing up. After a trap
 * each further page that is touched costs a TLB miss.
 */
#define HOSTRANGE_COOKIE_SITE(cookie) ((__u32)(cookie)&0xffffffu)
#define HOSTRANGE_COOKIE_RANGE(cookie) ((__u16)((cookie) >> 24))
/*
 * Bytes: stack pointer at the site + adjustment = stack pointer at the function's entry + HOSTRANGE_FRAME_LEVELS, less
 * the level of inlined code. At a function's entry the stack pointer is a multiple of eight; the numbers that lie
 * between tell apart the scopes that share one frame. Functions have the highest, inlined calls in them every second
 * one below, and a point-to-point scope is one below the scope around it. So whatever lies deeper has a lower number,
 * and any function that is called from there a lower one still.
 */
#define HOSTRANGE_FRAME_LEVELS 7
#define HOSTRANGE_INLINED_LEVEL(depth) (2 * (depth)) /* depth 1 to 3 */
#define HOSTRANGE_COOKIE_STACK_ADJUST(cookie) ((__s16)((cookie) >> 40))
#define HOSTRANGE_COOKIE_FLAGS(cookie) ((__u8)((cookie) >> 56))
#define HOSTRANGE_COOKIE(site, range, stack_adjust, flags)                                                             \
	((__u64)(site) | (__u64)(range) << 24 | (__u64)(__u16)(stack_adjust) << 40 | (__u64)(flags) << 56)
#define HOSTRANGE_MOST_SITES (1u << 24)
#define HOSTRANGE_MARKER_RANGE 0xffffu /* of the sites of range markers: the range is the marker's name */

/*
 * Flags of a site. TAIL_JUMP: the function leaves by a jump into another one, which returns in its stead: the scope
 * stays open until an exit at the same stack pointer is seen; on an entry site: the function is nothing but that jump.
 * IGNORED: the program does nothing. The others are known to scope_steps only. QUIET: an exit at which there may be no
 * scope to end. ONLY_TAILED: it ends only a scope that has left by a tail jump. POINT: of a point-to-point range, whose
 * scopes are matched by range alone. REPEATS: an entry that is passed again while its scope is open.
 * FRAME_POINTER: the adjustment is to the frame pointer. BY_EXCEPTION: an exit that exceptions lead to.
 */
#define HOSTRANGE_SITE_TAIL_JUMP 1u
#define HOSTRANGE_SITE_IGNORED 2u
#define HOSTRANGE_SITE_QUIET 4u
#define HOSTRANGE_SITE_ONLY_TAILED 8u
#define HOSTRANGE_SITE_POINT 16u
#define HOSTRANGE_SITE_REPEATS 32u
#define HOSTRANGE_SITE_FRAME_POINTER 64u
#define HOSTRANGE_SITE_BY_EXCEPTION 128u

/*
 * What is to be done at one address, where it is more than opening one scope or ending one. The attach cookie of such a
 * probe is an index into the map `steps_at_sites`; each step has the cookie that the site would have on its own.
 */
#define HOSTRANGE_MOST_STEPS 8
#define HOSTRANGE_ALWAYS 16u /* no condition */
struct hostrange_step {
	__u64 cookie;
	__u32 opens; /* 1: opens a scope, 0: ends one */
	__u32 condition; /* of a conditional jump, as the instruction encodes it: 0 to 15 */
};
struct hostrange_steps {
	__u32 count;
	__u32 reserved;
	struct hostrange_step step[HOSTRANGE_MOST_STEPS];
};

/*
 * Counters of one site on one CPU; one cache line. They count at the site that opened the scope, but for `orphans`.
 * entries = exits + by_exception + abandoned + open, always.
 */
struct hostrange_site_counters {
	__u64 entries; /* scopes opened */
	__u64 exits; /* scopes that ended by an exit site */
	__u64 by_exception; /* scopes ended by an exception that has been caught below them */
	__u64 abandoned; /* scopes whose frame vanished otherwise: longjmp, thread exit, exec, missed return */
	__u64 overflow; /* hits that opened no scope, the thread's stack of scopes being full */
	__u64 lost; /* scopes that ended by an exit site but whose record found no room in the ring */
	__u64 orphans; /* hits of this exit site that found no scope to end */
	__u64 total_ns; /* sum of the inclusive raw time of `exits` */
};

/* How a scope ended. */
enum hostrange_ending {
	HOSTRANGE_ENDED_BY_EXIT = 0,
	HOSTRANGE_ENDED_BY_EXCEPTION = 1,
	HOSTRANGE_ENDED_ABANDONED = 2,
	HOSTRANGE_ENDED_LATE = 3, /* by an exit, after it had been sent with another ending; known by thread, site and
	                             start */
};

#define HOSTRANGE_SCOPE_ENDING(ending) ((ending)&0xff) /* enum hostrange_ending */
#define HOSTRANGE_SCOPE_NAME(ending) ((ending) >> 8) /* number of the marker range's name; 0: a range of the map */
#define HOSTRANGE_MOST_NAMES 0xffffffu

/* A finished scope. Scopes stand in the order in which they ended: children before their parent. */
struct hostrange_scope {
	__u32 site; /* the entry site that opened it */
	__u32 id; /* number of the scope in its tree, in order of entry, from 1 */
	__u32 parent; /* id of the enclosing scope, 0 for the outermost */
	__u32 ending; /* HOSTRANGE_SCOPE_ENDING, HOSTRANGE_SCOPE_NAME */
	__u64 start_ns; /* CLOCK_MONOTONIC */
	__u64 duration_ns; /* inclusive, raw */
};

/* A ring-buffer record is a header followed by scope_count scopes. */
struct hostrange_tree_header {
	__u64 process_start_ns; /* boot-time clock, tells apart processes that had the same pid */
	__u64 tree; /* number of the tree in its thread */
	__u32 process_id;
	__u32 thread_id;
	__u32 part; /* 0, 1, ... within the tree */
	__u32 scope_count;
	__u32 flags; /* HOSTRANGE_TREE_* */
	__u32 reserved;
	char comm[HOSTRANGE_COMM_SIZE]; /* of the process; ends with a zero byte */
};

#define HOSTRANGE_TREE_LAST 1u /* no part follows */
#define HOSTRANGE_TREE_UNFINISHED 2u /* the outermost scope was still open: session end, thread exit, exec */
#define HOSTRANGE_TREE_PARTS_LOST 4u /* an earlier part found no room in the ring */
#define HOSTRANGE_TREE_DETACHED 8u /* one scope that stands by itself; says nothing of the thread's other trees */

/* Counters of rare things that belong to no site. */
struct hostrange_session_counters {
	__u64 no_state; /* hits without memory for the thread's stack of scopes */
	__u64 lost_trees; /* records that found no room in the ring */
	__u64 other_stack; /* times a scope on another stack (fiber, signal stack) was left alone */
	__u64 stack_unknown; /* times the kernel could not say which stack an address lies on, another thread changing
	                        the map */
	__u64 out_of_order; /* scopes that ended while a later one was still open */
	__u64 lost_events; /* process events that found no room in their ring */
	__u64 unrecorded; /* trees that began while recording was off */
	__u64 lost_marks; /* marks that found no room in their ring */
	__u64 ended_late; /* scopes that were taken for dead and whose exit came */
	__u64 dead_forgotten; /* scopes that were taken for dead and would not be known if their exit came */
};

/* What markers say, but for ranges. The cookie of such a marker is its kind. */
enum hostrange_mark_kind {
	HOSTRANGE_MARK_TEXT = 1, /* a piece of a text of the mark that follows from the same thread */
	HOSTRANGE_MARK_NAME = 2, /* numbers[0] is the number of a marker range's name; the text is the name */
	HOSTRANGE_MARK_SESSION_BEGIN = 3, /* text: name */
	HOSTRANGE_MARK_SESSION_END = 4,
	HOSTRANGE_MARK_CASE_BEGIN = 5, /* numbers[0]: number; texts before it: nodeid, operator, backend */
	HOSTRANGE_MARK_CASE_END = 6, /* numbers[0]: number */
	HOSTRANGE_MARK_PHASE_BEGIN = 7, /* text: name */
	HOSTRANGE_MARK_PHASE_END = 8, /* text: name */
	HOSTRANGE_MARK_MEASUREMENT = 9, /* text: name; numbers: count, then mean and median in ns as doubles */
	HOSTRANGE_MARK_PAUSE = 10, /* tells of it as an event, too */
	HOSTRANGE_MARK_RESUME = 11,
	HOSTRANGE_MARK_KINDS = 12,
};

#define HOSTRANGE_MARK_NODEID 0
#define HOSTRANGE_MARK_OPERATOR 1
#define HOSTRANGE_MARK_BACKEND 2
#define HOSTRANGE_MARK_TEXTS 3

#define HOSTRANGE_MARK_UNREADABLE 1u /* a text or number could not be read */
#define HOSTRANGE_MARK_CUT 2u /* the text goes on, but no more of it was read */

#define HOSTRANGE_MARK_TEXT_SIZE 424
#define HOSTRANGE_MARK_PIECES HOSTRANGE_MAX_DEPTH /* of a nodeid; the others have one */

/* A record of the ring `marks`. */
struct hostrange_mark {
	__u64 time_ns; /* CLOCK_MONOTONIC */
	__u64 process_start_ns;
	__u64 numbers[3];
	__u32 process_id;
	__u32 thread_id;
	__u32 kind; /* enum hostrange_mark_kind */
	__u32 flags; /* HOSTRANGE_MARK_* */
	__u32 text_number; /* of a piece: HOSTRANGE_MARK_NODEID ... */
	__u32 text_bytes;
	char comm[HOSTRANGE_COMM_SIZE];
	char text[HOSTRANGE_MARK_TEXT_SIZE];
};

/* What happens to watched processes. */
enum hostrange_event_kind {
	HOSTRANGE_EVENT_EXEC = 1, /* a new program, before its first instruction; origin_id is the id that the thread
	                             had which started it: another than process_id if it was not the main thread */
	HOSTRANGE_EVENT_LIBRARY = 2, /* the dynamic linker has mapped new objects, none of whose code has run */
	HOSTRANGE_EVENT_FORK = 3, /* a new process; origin_id is the process that forked */
	HOSTRANGE_EVENT_PAUSE = 4, /* the process asks for its probes to be taken away for a while */
	HOSTRANGE_EVENT_RESUME = 5, /* and to be put back */
};

struct hostrange_event {
	__u32 kind;
	__u32 process_id;
	__u32 origin_id;
	__u32 stopped; /* not 0: SIGSTOP was sent, and this is its place in the map "stopped", from 1; the loader must
	                  send SIGCONT */
};

/* Value of the map "watched", keyed by process id. 0: tell of its exec, libraries and forks. */
#define HOSTRANGE_WATCH_STOP 1u /* stop it there until the loader has attached; watch its children alike */

/* How many processes can be stopped at one time; the map "stopped" lists them for the guardian process. */
#define HOSTRANGE_MAX_STOPPED 4096

#ifdef __cplusplus
static_assert(sizeof(struct hostrange_site_counters) == 64);
static_assert(sizeof(struct hostrange_scope) == 32);
static_assert(sizeof(struct hostrange_tree_header) == 56);
static_assert(sizeof(struct hostrange_session_counters) == 80);
static_assert(sizeof(struct hostrange_mark) == 504);
static_assert(sizeof(struct hostrange_event) == 16);
static_assert(sizeof(struct hostrange_steps) == 8 + 16 * HOSTRANGE_MOST_STEPS);
#else
_Static_assert(sizeof(struct hostrange_site_counters) == 64, "shared layout");
_Static_assert(sizeof(struct hostrange_scope) == 32, "shared layout");
_Static_assert(sizeof(struct hostrange_tree_header) == 56, "shared layout");
_Static_assert(sizeof(struct hostrange_session_counters) == 80, "shared layout");
_Static_assert(sizeof(struct hostrange_mark) == 504, "shared layout");
_Static_assert(sizeof(struct hostrange_event) == 16, "shared layout");
_Static_assert(sizeof(struct hostrange_steps) == 8 + 16 * HOSTRANGE_MOST_STEPS, "shared layout");
#endif

#endif
