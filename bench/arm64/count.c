/*
 * A plugin of QEMU's translator that counts the instructions which an emulated
 * program executes. The counter is the first 8 bytes of a file, which the
 * program maps and reads as it would read a clock (bench/ticks.h).
 *
 *     qemu-aarch64 -plugin count.so,counter=FILE PROGRAM
 *
 * It uses version 1 of the plugin API (docs/devel/tcg-plugins of QEMU), which
 * QEMU 4.2 to 8.2 have. Debian has no package of its header, so the functions
 * used are declared here.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct qemu_plugin_tb;
struct qemu_plugin_insn;
struct qemu_info;
enum qemu_plugin_op { QEMU_PLUGIN_INLINE_ADD_U64 };

size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
struct qemu_plugin_insn *
qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb, size_t i);
void qemu_plugin_register_vcpu_insn_exec_inline(struct qemu_plugin_insn *insn,
						enum qemu_plugin_op op,
						void *counter, uint64_t add);
void qemu_plugin_register_vcpu_tb_trans_cb(
	uint64_t id,
	void (*translated)(uint64_t id, struct qemu_plugin_tb *block));

/* QEMU looks for these two symbols. */
extern int qemu_plugin_version;
int qemu_plugin_install(uint64_t id, const struct qemu_info *info, int argc,
			char **argv);

int qemu_plugin_version = 1;

static uint64_t *counter;

/* Each instruction of the block will add 1 before it is executed. */
static void count(uint64_t id, struct qemu_plugin_tb *block)
{
	const size_t n = qemu_plugin_tb_n_insns(block);

	(void)id;
	for (size_t i = 0; i < n; i++)
		qemu_plugin_register_vcpu_insn_exec_inline(
			qemu_plugin_tb_get_insn(block, i),
			QEMU_PLUGIN_INLINE_ADD_U64, counter, 1);
}

/* Maps the counter. Returns NULL on failure. */
static void *map(const char *path)
{
	const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	void *at = MAP_FAILED;

	if (fd >= 0 && ftruncate(fd, sizeof(*counter)) == 0)
		at = mmap(NULL, sizeof(*counter), PROT_READ | PROT_WRITE,
			  MAP_SHARED, fd, 0);
	if (fd >= 0)
		close(fd);
	return at == MAP_FAILED ? NULL : at;
}

int qemu_plugin_install(uint64_t id, const struct qemu_info *info, int argc,
			char **argv)
{
	static const char name[] = "counter=";

	(void)info;
	if (argc != 1 || strncmp(argv[0], name, strlen(name)) != 0) {
		fprintf(stderr, "count.so: give it one argument: "
				"-plugin count.so,counter=FILE\n");
		return 1;
	}
	counter = map(argv[0] + strlen(name));
	if (!counter) {
		fprintf(stderr, "count.so: %s: %s\n", argv[0], strerror(errno));
		return 1;
	}
	qemu_plugin_register_vcpu_tb_trans_cb(id, count);
	return 0;
}
