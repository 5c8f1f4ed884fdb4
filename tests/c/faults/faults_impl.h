/* Replacements of functions that fail when the test wants it. */
#ifndef FAULTS_IMPL_H
#define FAULTS_IMPL_H

#include <errno.h>

/* 1 if this call must fail. */
int faults_fails(const char *name);

/* Calls between the two are not counted: those of a simulated device. */
unsigned long faults_pause(void);
void faults_resume(unsigned long paused);

/*
 * A function, its result when it fails, and its errno. The Makefile reads the
 * names for --wrap from the lines that begin with FAULT. A library that the build
 * lacks leaves the real function undefined.
 */
#define FAULT(name, type, parameters, arguments, result, error)                \
	type __real_##name parameters __attribute__((weak));                   \
	type __wrap_##name parameters;                                         \
	type __wrap_##name parameters                                          \
	{                                                                      \
		unsigned long paused;                                          \
		type made;                                                     \
                                                                               \
		if (faults_fails(#name)) {                                     \
			errno = error;                                         \
			return result;                                         \
		}                                                              \
		paused = faults_pause();                                       \
		made = __real_##name arguments;                                \
		faults_resume(paused);                                         \
		return made;                                                   \
	}

#endif
