/* Functions that the clients and servers of this folder share. */
#ifndef TESTS_E2E_STACK_ENDS_H
#define TESTS_E2E_STACK_ENDS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LENGTH = 1 << 20 }; /* bytes of a message, a WRITE or a READ */

/* Ends the program with status 1 unless it is good. */
static inline void check(int good, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "%s failed\n", what);
	exit(1);
}

static inline unsigned char byte_at(int i)
{
	return (unsigned char)(i * 13 + i / 256);
}

static inline void fill(unsigned char data[LENGTH])
{
	for (int i = 0; i < LENGTH; i++)
		data[i] = byte_at(i);
}

static inline int whole(const unsigned char data[LENGTH])
{
	for (int i = 0; i < LENGTH; i++)
		if (data[i] != byte_at(i))
			return 0;
	return 1;
}

/* The main() of PROGRAM server|client ADDRESS PORT. */
static inline int run_end(int argc, char **argv,
			  void (*serve)(const char *address, const char *port),
			  void (*use)(const char *address, const char *port))
{
	if (argc == 4 && !strcmp(argv[1], "server"))
		serve(argv[2], argv[3]);
	else if (argc == 4 && !strcmp(argv[1], "client"))
		use(argv[2], argv[3]);
	else
		return 2;
	printf("%s ok\n", argv[1]);
	return 0;
}

#endif
