/*
 * A program of MPI whose results are checked: messages around a ring, of 1 byte up to
 * 1 MiB, a sum of all processes, and a message from each process to each. It prints
 * "RANK ok" and ends with 0, or ends all processes with 1.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { LONGEST = 1 << 20, COUNT = 1000, MOST = 64 };

static int rank, size;

static void check(int good, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "process %d: wrong result of %s\n", rank, what);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

static unsigned char byte_of(int sender, int i)
{
	return (unsigned char)(7 * sender + i);
}

static int filled_by(const unsigned char *data, int sender, int length)
{
	for (int i = 0; i < length; i++)
		if (data[i] != byte_of(sender, i))
			return 0;
	return 1;
}

/* Each process sends to the next one and receives from the one before. */
static void ring(int length)
{
	static unsigned char out[LONGEST], in[LONGEST];
	const int next = (rank + 1) % size, last = (rank + size - 1) % size;

	for (int i = 0; i < length; i++)
		out[i] = byte_of(rank, i);
	MPI_Sendrecv(out, length, MPI_BYTE, next, length, in, length, MPI_BYTE,
		     last, length, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	check(filled_by(in, last, length), "the ring");
}

static void sum(void)
{
	long own[COUNT], all[COUNT];

	for (int i = 0; i < COUNT; i++)
		own[i] = (long)rank * COUNT + i;
	MPI_Allreduce(own, all, COUNT, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
	for (int i = 0; i < COUNT; i++)
		check(all[i] == (long)size * (size - 1) / 2 * COUNT +
					(long)size * i,
		      "MPI_Allreduce()");
}

static void exchange(void)
{
	int out[MOST], in[MOST];

	for (int i = 0; i < size; i++)
		out[i] = rank * MOST + i;
	MPI_Alltoall(out, 1, MPI_INT, in, 1, MPI_INT, MPI_COMM_WORLD);
	for (int i = 0; i < size; i++)
		check(in[i] == i * MOST + rank, "MPI_Alltoall()");
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	check(size > 1 && size <= MOST, "the number of processes");
	for (int length = 1; length <= LONGEST; length *= 4)
		ring(length);
	sum();
	exchange();
	printf("%d ok\n", rank);
	MPI_Finalize();
	return 0;
}
