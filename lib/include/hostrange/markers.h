/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Markers: USDT probes by which a program tells hostrange-bpf (or bpftrace, perf, bcc) what it is doing. Link
 * libhostrange-markers. The provider is `hostrange`; docs/markers.md lists the probes and their arguments.
 *
 * While nobody listens, a marker costs a test: its function is not called, and its arguments are not evaluated. All
 * functions may be called from any thread and never fail; without a listener they do nothing. Text is UTF-8, ends with
 * a zero byte, and is read while the call lasts, unless the comment says otherwise.
 *
 * Case and phase belong to the process: calls that begin in any of its threads from then on are theirs. One of each at
 * a time; a second begin ends the first one. Ranges belong to the thread and nest.
 */
#ifndef HOSTRANGE_MARKERS_H
#define HOSTRANGE_MARKERS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HOSTRANGE_EXPORT __attribute__((visibility("default")))

/* Whether anybody listens to the markers of cases: 1 or 0. Build long texts only then. */
HOSTRANGE_EXPORT int hostrange_is_profiled(void);

/* Whether the probes of a profiler are in place, by which calls are timed: 1 or 0. They go during hostrange_pause(). */
HOSTRANGE_EXPORT int hostrange_is_probed(void);

/* A run of tests or the like; `name` says of what kind ("pytest"). */
HOSTRANGE_EXPORT void hostrange_session_begin(const char* name);
HOSTRANGE_EXPORT void hostrange_session_end(void);

/*
 * One test or benchmark case. `nodeid` names it, in up to 54,000 bytes (what is beyond is cut, and said so);
 * `operator_name` and `backend` are what its calls are reported under where their own symbols do not say it, and may be
 * NULL. Gives the number by which the case is ended; it counts from 1 in each process, and is 0 while nobody listens.
 */
HOSTRANGE_EXPORT uint64_t hostrange_case_begin(const char* nodeid, const char* operator_name, const char* backend);
HOSTRANGE_EXPORT void hostrange_case_end(uint64_t number);

/*
 * A part of the case: "cold", "warm", or any other name. Once a case has had a phase, only calls within its phases are
 * reported; in a case without any, the first call of an operator and those that construct one are cold, others warm.
 */
HOSTRANGE_EXPORT void hostrange_phase_begin(const char* name);
HOSTRANGE_EXPORT void hostrange_phase_end(const char* name);

/*
 * A range of the program's own: calls between begin and end are nested in it. `name` is known by its address: it must
 * stay where it is, unchanged, for the life of the process, as a string literal does.
 */
HOSTRANGE_EXPORT void hostrange_range_begin(const char* name);
HOSTRANGE_EXPORT void hostrange_range_end(const char* name);

/*
 * The same for code that others interrupt and that may go on in another thread (coroutines, event loops): stands by
 * itself, and no call is nested in it. `token` is not 0 and unlike that of any other such range that is open in this
 * process.
 */
HOSTRANGE_EXPORT void hostrange_range_begin_detached(const char* name, uint64_t token);
HOSTRANGE_EXPORT void hostrange_range_end_detached(const char* name, uint64_t token);

/*
 * A duration that the program has measured itself: `count` calls, mean and median in nanoseconds. It becomes a row of
 * the report, of the present case and phase ("warm" outside of any).
 */
HOSTRANGE_EXPORT void hostrange_measurement(const char* name, uint64_t count, double mean_ns, double median_ns);

/* How many listen to which marker. Markers stand in hot code: where nobody does, the functions are not even called. */
enum hostrange_marker {
    HOSTRANGE_SESSION_BEGIN,
    HOSTRANGE_SESSION_END,
    HOSTRANGE_CASE_BEGIN,
    HOSTRANGE_CASE_END,
    HOSTRANGE_PHASE_BEGIN,
    HOSTRANGE_PHASE_END,
    HOSTRANGE_RANGE_BEGIN,
    HOSTRANGE_RANGE_END,
    HOSTRANGE_MEASUREMENT,
    HOSTRANGE_MARKERS
};
HOSTRANGE_EXPORT extern const volatile uint16_t* const hostrange_listeners[HOSTRANGE_MARKERS];
#define HOSTRANGE_IF_LISTENED(marker, call) ((void)(*hostrange_listeners[marker] && (call, 1)))
#define hostrange_session_begin(name) HOSTRANGE_IF_LISTENED(HOSTRANGE_SESSION_BEGIN, hostrange_session_begin(name))
#define hostrange_session_end() HOSTRANGE_IF_LISTENED(HOSTRANGE_SESSION_END, hostrange_session_end())
#define hostrange_case_begin(nodeid, operator_name, backend) \
    (*hostrange_listeners[HOSTRANGE_CASE_BEGIN] ? hostrange_case_begin(nodeid, operator_name, backend) : (uint64_t)0)
#define hostrange_case_end(number) HOSTRANGE_IF_LISTENED(HOSTRANGE_CASE_END, hostrange_case_end(number))
#define hostrange_phase_begin(name) HOSTRANGE_IF_LISTENED(HOSTRANGE_PHASE_BEGIN, hostrange_phase_begin(name))
#define hostrange_phase_end(name) HOSTRANGE_IF_LISTENED(HOSTRANGE_PHASE_END, hostrange_phase_end(name))
#define hostrange_range_begin(name) HOSTRANGE_IF_LISTENED(HOSTRANGE_RANGE_BEGIN, hostrange_range_begin(name))
#define hostrange_range_end(name) HOSTRANGE_IF_LISTENED(HOSTRANGE_RANGE_END, hostrange_range_end(name))
#define hostrange_range_begin_detached(name, token) \
    HOSTRANGE_IF_LISTENED(HOSTRANGE_RANGE_BEGIN, hostrange_range_begin_detached(name, token))
#define hostrange_range_end_detached(name, token) \
    HOSTRANGE_IF_LISTENED(HOSTRANGE_RANGE_END, hostrange_range_end_detached(name, token))
#define hostrange_measurement(name, count, mean_ns, median_ns) \
    HOSTRANGE_IF_LISTENED(HOSTRANGE_MEASUREMENT, hostrange_measurement(name, count, mean_ns, median_ns))

/*
 * Asks the profiler to take its probes out of this process, so that something can be timed without them, and to put
 * them back. Waits for that, at most `timeout_ms`. Markers go on working. 0: done, or nobody listens. -1: the time is
 * over; hostrange_is_probed() tells how it stands (a profiler of all processes at once never does it).
 */
HOSTRANGE_EXPORT int hostrange_pause(unsigned timeout_ms);
HOSTRANGE_EXPORT int hostrange_resume(unsigned timeout_ms);

#ifdef __cplusplus
}
#endif

#endif
