#include "thread.h"

#include <pthread.h>

enum { STACK = 65536 };

int thread_start(void *(*run)(void *), void *arg)
{
	pthread_attr_t attr;
	pthread_t thread;
	int err;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	err = pthread_create(&thread, &attr, run, arg);
	pthread_attr_destroy(&attr);
	return -err;
}
