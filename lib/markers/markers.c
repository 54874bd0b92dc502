/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The markers' sites and the notes that tell where they are.
 *
 * A site is a function of its own that begins with a one-byte, a five-byte and a ten-byte no-op, before anything
 * touches the stack. The note names the first, which every kernel can probe. hostrange-bpf goes to the one that the
 * running kernel makes a call of: a call writes below the stack pointer, which is safe here and nowhere else, as
 * nothing of the caller's lies there. The alignment keeps all of them on one page.
 */
#include <hostrange/markers.h>

#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

#if defined(__x86_64__)
#define SITE_CODE                                                                                                      \
	".byte 0x90\n"                                                                                                 \
	".byte 0x0f, 0x1f, 0x44, 0x00, 0x00\n"                                                                         \
	".byte 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00\n"                                           \
	"ret\n"
#define ARGUMENTS_0 ""
#define ARGUMENTS_1 "8@%rdi"
#define ARGUMENTS_2 "8@%rdi 8@%rsi"
#define ARGUMENTS_4 "8@%rdi 8@%rsi 8@%rdx 8@%rcx"
#define ARGUMENTS_5 "8@%rdi 8@%rsi 8@%rdx 8@%rcx 8@%r8"
#elif defined(__aarch64__)
#define SITE_CODE "nop\nret\n"
#define ARGUMENTS_0 ""
#define ARGUMENTS_1 "8@x0"
#define ARGUMENTS_2 "8@x0 8@x1"
#define ARGUMENTS_4 "8@x0 8@x1 8@x2 8@x3"
#define ARGUMENTS_5 "8@x0 8@x1 8@x2 8@x3 8@x4"
#else
#error "markers know the calling conventions of x86-64 and arm64 only"
#endif

/*
 * The semaphore counts who listens; the kernel changes it. The note is in the format of SystemTap's sys/sdt.h: address
 * of the site, of .stapsdt.base, of the semaphore; provider, name, arguments.
 */
#define MARKER(name, arguments, ...)                                                                                   \
	__attribute__((section(".probes"), visibility("hidden"),                                                       \
	               used)) volatile unsigned short hostrange_##name##_semaphore;                                    \
	__attribute__((visibility("hidden"))) extern void hostrange_site_##name(__VA_ARGS__);                          \
	__asm__(".pushsection .text.hostrange_sites,\"ax\",%progbits\n"                                                \
	        ".balign 32\n"                                                                                         \
	        ".globl hostrange_site_" #name "\n"                                                                    \
	        ".hidden hostrange_site_" #name "\n"                                                                   \
	        ".type hostrange_site_" #name ",%function\n"                                                           \
	        "hostrange_site_" #name ":\n" SITE_CODE ".size hostrange_site_" #name ",.-hostrange_site_" #name "\n"  \
	        ".popsection\n"                                                                                        \
	        ".pushsection .note.stapsdt,\"\",%note\n"                                                              \
	        ".balign 4\n"                                                                                          \
	        ".4byte 992f-991f, 994f-993f, 3\n"                                                                     \
	        "991: .asciz \"stapsdt\"\n"                                                                            \
	        "992: .balign 4\n"                                                                                     \
	        "993: .8byte hostrange_site_" #name "\n"                                                               \
	        ".8byte _.stapsdt.base\n"                                                                              \
	        ".8byte hostrange_" #name "_semaphore\n"                                                               \
	        ".asciz \"hostrange\"\n"                                                                               \
	        ".asciz \"" #name "\"\n"                                                                               \
	        ".asciz \"" arguments "\"\n"                                                                           \
	        "994: .balign 4\n"                                                                                     \
	        ".popsection\n")

/* Tools read the address of this section to see whether a prelinker has moved the file. */
__asm__(".pushsection .stapsdt.base,\"aG\",%progbits,.stapsdt.base,comdat\n"
        ".weak _.stapsdt.base\n"
        ".hidden _.stapsdt.base\n"
        "_.stapsdt.base: .space 1\n"
        ".size _.stapsdt.base,1\n"
        ".popsection\n");

MARKER(session_begin, ARGUMENTS_1, const char *name);
MARKER(session_end, ARGUMENTS_0, void);
MARKER(case_begin, ARGUMENTS_4, uint64_t number, const char *nodeid, const char *operator_name, const char *backend);
MARKER(case_end, ARGUMENTS_1, uint64_t number);
MARKER(phase_begin, ARGUMENTS_1, const char *name);
MARKER(phase_end, ARGUMENTS_1, const char *name);
MARKER(range_begin, ARGUMENTS_2, const char *name, uint64_t token);
MARKER(range_end, ARGUMENTS_2, const char *name, uint64_t token);
/* Mean and median in whole nanoseconds, for any reader, and exactly, as two doubles. */
MARKER(measurement, ARGUMENTS_5, const char *name, uint64_t count, uint64_t mean_ns, uint64_t median_ns,
       const double *exact_ns);
MARKER(pause, ARGUMENTS_0, void);
MARKER(resume, ARGUMENTS_0, void);
/* Never reached: its semaphore tells that the profiler's probes are in place. */
MARKER(probed, ARGUMENTS_0, void);

const volatile uint16_t *const hostrange_listeners[HOSTRANGE_MARKERS] = {
        [HOSTRANGE_SESSION_BEGIN] = &hostrange_session_begin_semaphore,
        [HOSTRANGE_SESSION_END] = &hostrange_session_end_semaphore,
        [HOSTRANGE_CASE_BEGIN] = &hostrange_case_begin_semaphore,
        [HOSTRANGE_CASE_END] = &hostrange_case_end_semaphore,
        [HOSTRANGE_PHASE_BEGIN] = &hostrange_phase_begin_semaphore,
        [HOSTRANGE_PHASE_END] = &hostrange_phase_end_semaphore,
        [HOSTRANGE_RANGE_BEGIN] = &hostrange_range_begin_semaphore,
        [HOSTRANGE_RANGE_END] = &hostrange_range_end_semaphore,
        [HOSTRANGE_MEASUREMENT] = &hostrange_measurement_semaphore,
};

static atomic_uint_fast64_t last_case;

/* The kernel reads only what is in memory already, and a literal that nobody has looked at may not be: look at it. */
static const char *readable(const char *text)
{
	const char *result = text ? text : "";
	size_t length = strlen(result);

	/* The compiler must not know better. */
	__asm__ volatile("" : : "r"(length), "r"(*(const volatile char *)result));
	return result;
}

int hostrange_is_profiled(void) { return hostrange_case_begin_semaphore != 0; }

int hostrange_is_probed(void) { return hostrange_probed_semaphore != 0; }

/* In brackets: the names are macros, too. */
void(hostrange_session_begin)(const char *name)
{
	if (hostrange_session_begin_semaphore)
		hostrange_site_session_begin(readable(name));
}

void(hostrange_session_end)(void)
{
	if (hostrange_session_end_semaphore)
		hostrange_site_session_end();
}

uint64_t(hostrange_case_begin)(const char *nodeid, const char *operator_name, const char *backend)
{
	uint64_t number;

	if (!hostrange_case_begin_semaphore)
		return 0;
	number = atomic_fetch_add(&last_case, 1) + 1;
	hostrange_site_case_begin(number, readable(nodeid), readable(operator_name), readable(backend));
	return number;
}

void(hostrange_case_end)(uint64_t number)
{
	/* 0: nobody listened when it began. */
	if (hostrange_case_end_semaphore && number)
		hostrange_site_case_end(number);
}

void(hostrange_phase_begin)(const char *name)
{
	if (hostrange_phase_begin_semaphore)
		hostrange_site_phase_begin(readable(name));
}

void(hostrange_phase_end)(const char *name)
{
	if (hostrange_phase_end_semaphore)
		hostrange_site_phase_end(readable(name));
}

void(hostrange_range_begin)(const char *name)
{
	if (hostrange_range_begin_semaphore)
		hostrange_site_range_begin(readable(name), 0);
}

void(hostrange_range_end)(const char *name)
{
	if (hostrange_range_end_semaphore)
		hostrange_site_range_end(readable(name), 0);
}

void(hostrange_range_begin_detached)(const char *name, uint64_t token)
{
	if (hostrange_range_begin_semaphore)
		hostrange_site_range_begin(readable(name), token);
}

void(hostrange_range_end_detached)(const char *name, uint64_t token)
{
	if (hostrange_range_end_semaphore)
		hostrange_site_range_end(readable(name), token);
}

static uint64_t whole_ns(double duration_ns)
{
	if (!(duration_ns > 0)) /* not a number as well */
		return 0;
	return duration_ns < 1e18 ? (uint64_t)(duration_ns + 0.5) : (uint64_t)1e18;
}

void(hostrange_measurement)(const char *name, uint64_t count, double mean_ns, double median_ns)
{
	double exact_ns[2] = {mean_ns, median_ns};

	if (hostrange_measurement_semaphore) {
		/* The compiler cannot see that the site's reader reads them. */
		__asm__ volatile("" : : "r"(exact_ns) : "memory");
		hostrange_site_measurement(readable(name), count, whole_ns(mean_ns), whole_ns(median_ns), exact_ns);
	}
}

/* Looks again every 100 us until the probes are there (1) or gone (0). */
static int wait_until_probed(int wanted, unsigned timeout_ms)
{
	const struct timespec pause = {.tv_sec = 0, .tv_nsec = 100000};
	struct timespec begin, now;

	clock_gettime(CLOCK_MONOTONIC, &begin);
	while (hostrange_is_probed() != wanted) {
		clock_gettime(CLOCK_MONOTONIC, &now);
		if ((now.tv_sec - begin.tv_sec) * 1000 + (now.tv_nsec - begin.tv_nsec) / 1000000 >= (long)timeout_ms)
			return -1;
		nanosleep(&pause, NULL);
	}
	return 0;
}

int hostrange_pause(unsigned timeout_ms)
{
	if (!hostrange_pause_semaphore)
		return 0;
	hostrange_site_pause();
	return wait_until_probed(0, timeout_ms);
}

int hostrange_resume(unsigned timeout_ms)
{
	if (!hostrange_resume_semaphore)
		return 0;
	hostrange_site_resume();
	return wait_until_probed(1, timeout_ms);
}
