# srdma. The C half needs a C compiler, OpenSSL and libdeflate, but no Python:
#     make lib offload
# Other targets install their dependencies (.ci/setup): make demo, make test.
# Variables: V=1 shows the commands; BUILD=DIR builds elsewhere;
# FUZZ_SECONDS=N is the time per fuzzer. Before a commit: make format lint.

BUILD ?= build
FUZZ_SECONDS ?= 60
PY := .venv/bin/python
ifeq ($(origin CC),default)
CC := gcc
endif
ifeq ($(MAKELEVEL),0)
# One more than the cores: the sections of the tests also wait.
MAKEFLAGS += -j$(shell echo $$(($$(nproc) + 1)))
endif
Q := $(if $(V),,@)
say = $(if $(V),,@printf '  %-5s %s\n' '$(1)' '$(2)')
make-quietly := $(MAKE) --no-print-directory

# Sources -------------------------------------------------------------------

# "yes" if a program with these headers and statements links with these
# libraries. Testing the headers only is not enough: a cross compiler finds those
# of the build machine.
can-link = $(shell printf '%b\n' $(patsubst %,'\0043include <%>',$(1)) \
	'int main(void) { $(3) return 0; }' | \
	$(CC) -x c - $(2) -o /dev/null >/dev/null 2>&1 && echo yes)

HAVE_VERBS := $(call can-link,infiniband/verbs.h rdma/rdma_cma.h,-lrdmacm -libverbs)
HAVE_IPSECMB := $(call can-link,intel-ipsec-mb.h,-lIPSec_MB)
# Nettle 3.6 to 3.10: before it there is no nettle_cmac_aes128, and from 4.0 on
# digest() takes no length.
NETTLE_3 := nettle_cmac_aes128.digest(0, 16, 0); nettle_gcm_aes128.digest(0, 16, 0);
HAVE_NETTLE := $(call can-link,nettle/nettle-meta.h,-lnettle,$(NETTLE_3))
HAVE_CBOR := $(call can-link,cbor.h,-lcbor)
HAVE_TLS := $(call can-link,cbor.h openssl/ssl.h,-lcbor -lssl -lcrypto)

CORE_DIRS := base ledger wire crypto session memory qp requester responder path relay \
	port port/shm port/udp $(if $(HAVE_VERBS),port/verbs)
CORE_SRC := $(wildcard $(CORE_DIRS:%=csrc/%/*.c))
ifndef HAVE_IPSECMB
CORE_SRC := $(filter-out csrc/crypto/%ipsecmb.c csrc/crypto/suite_ipsecmb%,$(CORE_SRC))
endif
ifndef HAVE_NETTLE
CORE_SRC := $(filter-out csrc/crypto/%nettle.c csrc/crypto/suite_nettle%,$(CORE_SRC))
endif
# The simulated port: two relays joined in memory, for tests and the ladder.
SIM_SRC := $(wildcard csrc/port/sim/*.c)
LEG_VERBS := $(patsubst %,host/%.c,rdma leg_verbs leg_verbs_cm leg_verbs_device verbs_queue)
HOST_SRC := $(filter-out $(if $(HAVE_VERBS),host/leg_verbs_absent.c,$(LEG_VERBS)),$(wildcard host/*.c))
# The messages of the agent are CBOR. Without libcbor there is no libsrdma.so.
ifndef HAVE_CBOR
HOST_SRC := $(filter-out $(patsubst %,host/%.c,message channel lasting_channel settings \
	connection listener),$(HOST_SRC))
endif
EXAMPLE_SRC := $(wildcard examples/*.c)
# A program of tests/e2e that uses libsrdma like a user.
LIBRARY_TEST_SRC := $(wildcard tests/e2e/library/*.c)
OFFLOAD_SRC := $(wildcard offload/*.c)
# srdma-control. Without libssl or libcbor it is not built.
CONTROL_SRC := $(if $(HAVE_TLS),$(wildcard control/*.c))
VERBS_SRC := $(wildcard verbs/*.c)
RDMACM_SRC := $(wildcard rdmacm/*.c)
# A program that uses libibverbs, which tests/e2e starts by `srdma run`.
RUN_TEST_SRC := $(wildcard tests/e2e/verbs/*.c)
BENCH_SRC := $(wildcard bench/*.c)
KVS_SRC := $(wildcard bench/kvs/*.c)
C_TEST_SRC := $(wildcard tests/c/*/test_*.c)
ifndef HAVE_VERBS
C_TEST_SRC := $(filter-out tests/c/verbs/% tests/c/rdmacm/% tests/c/port/test_port_verbs% \
	tests/c/faults/test_faults_leg.c tests/c/faults/test_faults_verbs.c \
	$(patsubst %,tests/c/host/test_%.c,rdma rdma_namespace leg_verbs pd_verbs),$(C_TEST_SRC))
endif
ifndef HAVE_CBOR
C_TEST_SRC := $(filter-out $(patsubst %,tests/c/host/test_%.c,access agent device \
	lasting_channel lasting_control message pd_verbs threads) tests/c/faults/test_faults_host.c,$(C_TEST_SRC))
endif
ifndef HAVE_TLS
C_TEST_SRC := $(filter-out tests/c/control/%,$(C_TEST_SRC))
endif
C_HELPER_SRC := $(filter-out $(wildcard tests/c/*/test_*.c),$(wildcard tests/c/*/*.c))
ifndef HAVE_VERBS
C_HELPER_SRC := $(filter-out %/fake_rdma.c %/fake_verbs.c %/faults_verbs.c %/verbs_port.c,\
	$(C_HELPER_SRC))
endif
FUZZ_SRC := $(wildcard tests/fuzz/fuzz_*.c)
ifndef HAVE_CBOR
FUZZ_SRC := $(filter-out %/fuzz_message.c,$(FUZZ_SRC))
endif
ifndef HAVE_TLS
FUZZ_SRC := $(filter-out %/fuzz_frame.c,$(FUZZ_SRC))
endif
C_FILES := $(foreach d,$(CORE_DIRS:%=csrc/%) csrc/port/verbs csrc/port/sim host verbs verbs/preload rdmacm include/srdma \
	examples offload control tests/c/* tests/e2e/c tests/e2e/library tests/e2e/stack tests/e2e/verbs tests/smartnic/c tests/fuzz tests/ct bench \
	bench/kvs bench/arm64 attack/c,$(wildcard $(d)/*.c $(d)/*.h))
BUDGET_DIRS := $(wildcard csrc host verbs rdmacm include examples offload control srdma bench attack)

objects = $(patsubst %.c,$(BUILD)/%.o,$(1))
LIB := $(BUILD)/libsrdma-core.a
SIM := $(BUILD)/libsrdma-sim.a
# The host side of a leg.
HOST := $(BUILD)/libsrdma-host.a
# libibverbs for unmodified programs (docs/run.md), in a folder of its own.
RUN := $(BUILD)/run/libibverbs.so.1
RUN_CM := $(BUILD)/run/librdmacm.so.1
RUN_FILE := $(BUILD)/run/libsrdma-device.so.1
# The host library for programs in C.
SO := $(BUILD)/libsrdma.so.0
EXAMPLES := $(EXAMPLE_SRC:%.c=$(BUILD)/%)
LIBRARY_TEST := $(BUILD)/tests/e2e/library/verbs
RUN_TEST := $(RUN_TEST_SRC:%.c=$(BUILD)/%)
OFFLOAD := $(BUILD)/srdma-offload
# Programs for the NICs of the stand (tests/smartnic).
NIC_PROGRAMS := $(patsubst %.c,$(BUILD)/%,$(wildcard tests/smartnic/c/*.c))
# The daemon without main(), for unit tests.
OFFLOAD_PARTS := $(BUILD)/liboffload.a
CONTROL := $(BUILD)/srdma-control
CONTROL_PARTS := $(BUILD)/libcontrol.a
C_HELPERS := $(BUILD)/libcheck.a
# The key-value store of the benchmark, for bench/python/srdma_bench/native/kvs.pyx.
KVS := $(BUILD)/libkvs.a
C_TESTS := $(C_TEST_SRC:%.c=$(BUILD)/%)
FUZZERS := $(FUZZ_SRC:%.c=$(BUILD)/%)

# Flags ---------------------------------------------------------------------

WARNINGS := -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes \
	-Wmissing-prototypes -Wpointer-arith -Wcast-qual -Wwrite-strings
HARDENING := -fstack-protector-strong -D_FORTIFY_SOURCE=2
OPTIMISE := -O2
# The targets asan and fuzz set SANITIZE and build in a BUILD of their own.
ifdef SANITIZE
HARDENING :=
OPTIMISE := -O1 -fno-omit-frame-pointer
SANITIZER_FLAGS := -fsanitize=$(SANITIZE) -fno-sanitize-recover=all \
	-DSRDMA_SANITIZED
endif
# For generic x86-64, gcc 12 clears and copies larger structures with `rep`
# instructions. With this tuning it does not: a message of 32 bytes takes 0.9 of
# the time.
ifneq ($(findstring x86_64,$(shell $(CC) -dumpmachine)),)
OPTIMISE += -mtune=icelake-server
endif
# Programs with a data path are linked with LTO (WHOLE): the parts of a QP call
# each other by small functions, which LTO inlines. Other programs are linked
# without it (-fno-lto, which no later -flto undoes).
ifeq ($(findstring clang,$(CC))$(SANITIZE),)
LTO := -flto -ffat-lto-objects
WHOLE := -O2 -flto=auto -Wno-maybe-uninitialized
endif
ALL_CPPFLAGS := -D_GNU_SOURCE -Icsrc -Iinclude -I. $(if $(HAVE_VERBS),-DSRDMA_HAVE_VERBS) \
	$(if $(HAVE_IPSECMB),-DSRDMA_HAVE_IPSECMB) $(if $(HAVE_NETTLE),-DSRDMA_HAVE_NETTLE) \
	$(CPPFLAGS)
ALL_CFLAGS := -std=c11 $(OPTIMISE) -g -fPIC -pthread $(WARNINGS) $(HARDENING) \
	$(LTO) $(SANITIZER_FLAGS) $(CFLAGS)
ALL_LDFLAGS := -pthread -Wl,-z,relro,-z,now $(SANITIZER_FLAGS) $(LDFLAGS)
LIBS := $(if $(HAVE_VERBS),-lrdmacm -libverbs) \
	$(if $(HAVE_IPSECMB),-lIPSec_MB) $(if $(HAVE_NETTLE),-lnettle) -lcrypto -ldeflate

# The C half ----------------------------------------------------------------

.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
.SECONDARY:
.PHONY: all lib run kvs offload control nic-programs attack bench bench-quick bench-arm64 check-bench native native-core check-c asan test-arm64 fuzz \
	lint format examples \
	setup test test-rxe test-rxe-job test-rxe-faults test-two-vms demo demo-rxe soak simulation simulation-sanitized digests transfer forged \
	clean distclean print-libs run-fuzzers \
	without-verbs without-cbor without-tls host-examples host-tests install install-without-cbor \
	uninstall FORCE

all: lib offload control host-examples

lib: $(LIB) $(HOST) $(if $(HAVE_CBOR),$(SO)) $(if $(HAVE_VERBS),,without-verbs) \
		$(if $(HAVE_CBOR),,without-cbor)
	@:

host-examples: $(if $(HAVE_CBOR),$(EXAMPLES))
	@:

host-tests: host-examples $(if $(HAVE_CBOR),$(LIBRARY_TEST)) $(if $(HAVE_VERBS),$(RUN_TEST))
	@:

kvs: $(KVS)
	@:

offload: $(if $(OFFLOAD_SRC),$(OFFLOAD))
	@:

control: $(if $(HAVE_TLS),$(CONTROL),without-tls)
nic-programs: $(NIC_PROGRAMS)
	@:

without-verbs:
	@echo 'srdma: no libibverbs and librdmacm headers: built without the' \
		'verbs port' >&2

without-cbor:
	@echo 'srdma: no libcbor headers: built without libsrdma.so' >&2

without-tls:
	@echo 'srdma: no libssl or libcbor headers: built without srdma-control' >&2

print-libs:
	@echo $(LIBS) -lm

# This file changes with the flags and the list of sources; then everything is
# built again.
BUILD_KEY := $(CC) $(ALL_CPPFLAGS) $(ALL_CFLAGS) $(CORE_SRC) $(SIM_SRC) $(HOST_SRC) \
	$(OFFLOAD_SRC) $(CONTROL_SRC) $(C_HELPER_SRC) $(KVS_SRC) $(VERBS_SRC) $(RDMACM_SRC)
$(BUILD)/key: FORCE
	@mkdir -p $(@D)
	@echo '$(BUILD_KEY)' | cmp -s - $@ || echo '$(BUILD_KEY)' >$@

$(BUILD)/%.o: %.c $(BUILD)/key
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CPPFLAGS) $(if $(filter tests/% bench/%,$<),-Ioffload -Itests/c \
		-Ibench -Ibench/kvs) \
		$(ALL_CFLAGS) -MMD -MP -c -o $@ $<

$(LIB): $(call objects,$(CORE_SRC))
$(SIM): $(call objects,$(SIM_SRC))
$(HOST): $(call objects,$(HOST_SRC))
$(OFFLOAD_PARTS): $(call objects,$(filter-out %/main.c,$(OFFLOAD_SRC)))
$(CONTROL_PARTS): $(call objects,$(filter-out %/main.c,$(CONTROL_SRC)))
$(C_HELPERS): $(call objects,$(C_HELPER_SRC))
$(KVS): $(call objects,$(KVS_SRC))
$(BUILD)/%.a: $(BUILD)/key
	$(call say,AR,$@)
	$(Q)rm -f $@ && ar rcs $@ $(filter %.o,$^)

# -z defs: a symbol that no library of the link has is an error, so that no part
# of csrc that needs OpenSSL comes in.
$(SO): $(call objects,$(HOST_SRC)) $(LIB) host/libsrdma.map
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) $(WHOLE) -shared -Wl,-soname,$(@F) \
		-Wl,--version-script=host/libsrdma.map $(if $(SANITIZE),,-Wl,-z,defs) \
		-o $@ $(filter %.o %.a,$^) -lcbor
	$(Q)ln -sf $(@F) $(BUILD)/libsrdma.so

# Like a program of a user: with the public headers and the library alone.
LIKE_A_USER = $(CC) -Iinclude -std=c11 -D_GNU_SOURCE -O2 -g $(WARNINGS) $(SANITIZER_FLAGS) \
	$(ALL_LDFLAGS) -Wl,-rpath,$(abspath $(BUILD)) -o $@ $(filter %.c,$^) -L$(BUILD) -lsrdma
$(EXAMPLES): $(BUILD)/%: %.c $(SO) $(wildcard include/srdma/*.h)
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(LIKE_A_USER)

$(RUN_TEST): $(BUILD)/%: %.c $(wildcard tests/e2e/verbs/*.h)
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) -std=c11 -D_GNU_SOURCE -O2 -g $(WARNINGS) $(ALL_LDFLAGS) -Itests/c -o $@ $(filter %.c,$^) \
		-lrdmacm -libverbs -lcmocka
$(BUILD)/tests/e2e/verbs/cm $(BUILD)/tests/e2e/verbs/cm_fork: tests/c/support/descriptors.c

$(LIBRARY_TEST): $(LIBRARY_TEST_SRC) $(wildcard tests/e2e/library/*.h) $(SO) \
		$(wildcard include/srdma/*.h)
	$(call say,CC,$@)
	@mkdir -p $(@D)
	$(Q)$(LIKE_A_USER) -lcmocka

RUN_OBJECTS := $(call objects,$(VERBS_SRC) $(HOST_SRC))
$(RUN): $(RUN_OBJECTS) $(LIB) verbs/libibverbs.map
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) $(WHOLE) -shared -Wl,-soname,$(@F) \
		-Wl,--version-script=verbs/libibverbs.map $(if $(SANITIZE),,-Wl,-z,defs) \
		-o $@ $(filter %.o %.a,$^) -lcbor
	$(Q)ln -sf $(@F) $(BUILD)/run/libibverbs.so
# librdmacm: it talks to the agent itself, and uses srdma's libibverbs.
RUN_CM_OBJECTS := $(call objects,$(RDMACM_SRC) verbs/policy.c $(patsubst %,host/%.c,channel \
	error lasting_channel message retry socket talk))
$(RUN_CM): $(RUN_CM_OBJECTS) $(LIB) rdmacm/librdmacm.map $(RUN)
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) $(WHOLE) -shared -Wl,-soname,$(@F) \
		-Wl,--version-script=rdmacm/librdmacm.map $(if $(SANITIZE),,-Wl,-z,defs) \
		-o $@ $(filter %.o %.a %.so.1,$^) -lcbor
	$(Q)ln -sf $(@F) $(BUILD)/run/librdmacm.so
# The device file that programs look for.
$(RUN_FILE): $(call objects,verbs/preload/device_file.c)
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -shared -Wl,-soname,$(@F) -o $@ $^
run: $(if $(HAVE_VERBS),$(if $(HAVE_CBOR),$(RUN) $(RUN_CM) $(RUN_FILE)))
	@:

LADDER := $(BUILD)/bench/ladder
PRIMITIVES := $(BUILD)/bench/primitives
MANY := $(BUILD)/bench/many
FLOODER := $(BUILD)/bench/flooder
TLS_PEERS := $(BUILD)/bench/tls_echo $(BUILD)/bench/tls_load
bench: $(LADDER) $(MANY) $(PRIMITIVES) $(FLOODER) $(TLS_PEERS)
	@:

# Programs for the comparison with TLS, redis and memcached.
$(TLS_PEERS): %: %.o $(BUILD)/bench/tls_link.o $(KVS)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -fno-lto -o $@ $(filter %.o %.a,$^) \
		-lssl -lcrypto -lm

$(PRIMITIVES): $(BUILD)/bench/primitives.o $(OFFLOAD_PARTS) $(LIB)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -fno-lto -o $@ $(filter %.o %.a,$^) $(LIBS)

# The program of the attack kit (docs/attacks.md).
SWEEP := $(BUILD)/attack/sweep
attack: $(SWEEP)
	@:

$(SWEEP): $(BUILD)/attack/c/sweep.o $(LIB)
$(FLOODER): $(BUILD)/bench/flooder.o $(LIB)
$(SWEEP) $(FLOODER):
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -fno-lto -o $@ $(filter %.o %.a,$^) -ldeflate

# Short runs of all benchmarks: a wrong result fails, a slow one does not.
bench-quick: bench native offload
	@$(PY) -c 'import matplotlib, srdma_bench' 2>/dev/null || .ci/setup bench
	@$(LADDER) --rounds 3
	@$(MANY) --qps 2000 --rounds 1 --messages 2000
	@out=$$(mktemp -d) && trap 'rm -rf "$$out"' EXIT && \
		$(PY) -m srdma bench paper --smoke --out "$$out/paper" && \
		$(PY) -m srdma bench targets --smoke --out "$$out/targets"

# The ladder uses the pairs of sessions and relays of tests/c/support (C_HELPERS).
BENCH_NIC := bench/bench_leg.c bench/meeting.c
LADDER_SRC := bench/ladder.c bench/udp_end.c bench/ticks.c bench/nic.c bench/tally.c $(BENCH_NIC) \
	$(wildcard bench/rung_*.c)
$(LADDER): $(call objects,$(LADDER_SRC))
$(MANY): $(call objects,bench/many.c bench/crowd.c $(BENCH_NIC))
$(LADDER) $(MANY): $(C_HELPERS) $(OFFLOAD_PARTS) $(HOST) $(SIM) $(LIB)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) $(WHOLE) -o $@ $(filter %.o,$^) \
		$(filter %.a,$^) $(LIBS) -lcmocka

$(OFFLOAD): $(BUILD)/offload/main.o $(OFFLOAD_PARTS) $(LIB)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) $(WHOLE) -o $@ $(filter %.o %.a,$^) $(LIBS)

$(CONTROL): $(BUILD)/control/main.o $(CONTROL_PARTS) $(OFFLOAD_PARTS) $(HOST) $(LIB)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -fno-lto -o $@ $(filter %.o %.a,$^) \
		-lcbor -lssl -lcrypto
$(NIC_PROGRAMS): %: %.o
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -fno-lto -o $@ $<

$(BUILD)/tests/c/bench/test_tally: $(BUILD)/bench/tally.o
$(BUILD)/tests/c/verbs/test_policy: $(BUILD)/verbs/policy.o
$(BUILD)/tests/c/verbs/test_attr: $(patsubst %,$(BUILD)/verbs/%.o,attr transport)
$(BUILD)/tests/c/verbs/test_loss: $(BUILD)/verbs/loss.o
$(BUILD)/tests/c/verbs/test_map: $(BUILD)/verbs/map.o
$(BUILD)/tests/c/verbs/test_ud_wire: $(BUILD)/verbs/ud_wire.o
$(BUILD)/tests/c/verbs/test_ud_recv: $(patsubst %,$(BUILD)/verbs/%.o,ud_recv ud_wire recvs)
$(BUILD)/tests/c/verbs/test_ud_send: $(patsubst %,$(BUILD)/verbs/%.o,ud_send ud_wire)
$(BUILD)/tests/c/verbs/test_ud_members: $(BUILD)/verbs/ud_members.o
$(BUILD)/tests/c/verbs/test_ud_group: $(patsubst %,$(BUILD)/verbs/%.o,ud_group ud_members policy)
$(BUILD)/tests/c/verbs/test_ud_session: $(patsubst %,$(BUILD)/verbs/%.o,ud_session ud_room ud_talk ud_wire)
$(BUILD)/tests/c/verbs/test_ud_qp: $(patsubst %,$(BUILD)/verbs/%.o,ud qp recvs transport)
$(BUILD)/tests/c/verbs/test_connect: $(BUILD)/verbs/connect.o $(BUILD)/verbs/private.o
$(BUILD)/tests/c/rdmacm/test_wire: $(BUILD)/rdmacm/wire.o
$(BUILD)/tests/c/rdmacm/test_address: $(BUILD)/rdmacm/address.o
$(BUILD)/tests/c/rdmacm/test_multicast: $(patsubst %,$(BUILD)/rdmacm/%.o,address multicast)
$(BUILD)/tests/c/verbs/test_event: $(BUILD)/verbs/event.o
$(BUILD)/tests/c/verbs/test_loop: $(BUILD)/verbs/loop.o
$(BUILD)/tests/c/verbs/test_worker: $(patsubst %,$(BUILD)/verbs/%.o,async event worker)
# The programs of tests/c/faults replace the functions of the tables of faults.c.
FAULTS := $(foreach f,$(shell sed -n 's/^FAULT.\([A-Za-z0-9_]*\),.*/\1/p' tests/c/faults/*.c),\
	-Wl,--wrap=$(f))
$(C_TESTS): %: %.o $(C_HELPERS) $(CONTROL_PARTS) \
		$(OFFLOAD_PARTS) $(KVS) $(HOST) $(SIM) $(LIB)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -fno-lto -o $@ $(filter %.o,$^) $(filter %.a,$^) \
		$(if $(findstring /faults/,$@),$(FAULTS) $(C_HELPERS)) \
		$(if $(HAVE_TLS),-lssl) $(LIBS) $(if $(HAVE_CBOR),-lcbor) -lcmocka -lm

$(BUILD)/tests/fuzz/fuzz_%: $(BUILD)/tests/fuzz/fuzz_%.o $(CONTROL_PARTS) $(HOST) $(SIM) $(LIB)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -fno-lto -fsanitize=fuzzer -o $@ \
		$(filter %.o %.a,$^) $(LIBS) $(if $(HAVE_CBOR),-lcbor)

-include $(CT).d $(patsubst %.c,$(BUILD)/%.d,$(CORE_SRC) $(SIM_SRC) $(HOST_SRC) $(OFFLOAD_SRC) \
	$(CONTROL_SRC) $(C_TEST_SRC) \
	$(C_HELPER_SRC) $(FUZZ_SRC) $(BENCH_SRC) $(KVS_SRC) $(VERBS_SRC) $(RDMACM_SRC) attack/c/sweep.c)

# Installation --------------------------------------------------------------

DESTDIR ?=
PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
BINDIR ?= $(PREFIX)/bin
MANDIR ?= $(PREFIX)/share/man
UNITDIR ?= $(PREFIX)/lib/systemd/system
UNITS := $(filter-out $(if $(HAVE_TLS),,%/srdma-control.service),$(wildcard offload/*.service))
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)

install: $(if $(HAVE_CBOR),$(SO) run $(OFFLOAD) $(if $(HAVE_TLS),$(CONTROL),without-tls), \
		install-without-cbor)
	install -d $(addprefix $(DESTDIR),$(LIBDIR)/pkgconfig $(INCLUDEDIR)/srdma $(BINDIR) \
		$(MANDIR)/man7 $(MANDIR)/man8 $(UNITDIR))
	install -m 644 include/srdma/*.h $(DESTDIR)$(INCLUDEDIR)/srdma
	install -m 755 $(SO) $(DESTDIR)$(LIBDIR)
	ln -sf $(notdir $(SO)) $(DESTDIR)$(LIBDIR)/libsrdma.so
	$(if $(HAVE_VERBS),install -D -m 755 -t $(DESTDIR)$(LIBDIR)/srdma/run $(RUN) $(RUN_CM) $(RUN_FILE))
	$(if $(HAVE_VERBS),ln -sf $(notdir $(RUN)) $(DESTDIR)$(LIBDIR)/srdma/run/libibverbs.so)
	$(if $(HAVE_VERBS),ln -sf $(notdir $(RUN_CM)) $(DESTDIR)$(LIBDIR)/srdma/run/librdmacm.so)
	sed -e 's|@PREFIX@|$(PREFIX)|; s|@LIBDIR@|$(LIBDIR)|' \
		-e 's|@INCLUDEDIR@|$(INCLUDEDIR)|; s|@VERSION@|$(VERSION)|' host/srdma.pc.in \
		>$(BUILD)/srdma.pc
	install -m 644 $(BUILD)/srdma.pc $(DESTDIR)$(LIBDIR)/pkgconfig
	install -m 755 $(OFFLOAD) $(if $(HAVE_TLS),$(CONTROL)) $(DESTDIR)$(BINDIR)
	install -m 644 docs/man/libsrdma.7 $(DESTDIR)$(MANDIR)/man7
	install -m 644 docs/man/srdma-control.8 $(DESTDIR)$(MANDIR)/man8
	for unit in $(UNITS); do \
		sed 's|=/usr/bin/|=$(BINDIR)/|' $$unit >$(BUILD)/$${unit##*/} && \
		install -m 644 $(BUILD)/$${unit##*/} $(DESTDIR)$(UNITDIR) || exit 1; \
	done

install-without-cbor:
	@echo 'srdma: install needs libsrdma.so, which needs libcbor: apt-get install libcbor-dev' >&2
	@exit 1

uninstall:
	rm -f $(addprefix $(DESTDIR),$(LIBDIR)/libsrdma.so $(LIBDIR)/$(notdir $(SO)) \
		$(LIBDIR)/pkgconfig/srdma.pc $(BINDIR)/srdma-offload $(BINDIR)/srdma-control \
		$(MANDIR)/man7/libsrdma.7 $(MANDIR)/man8/srdma-control.8 \
		$(addprefix $(UNITDIR)/,$(notdir $(UNITS))))
	rm -rf $(DESTDIR)$(INCLUDEDIR)/srdma $(DESTDIR)$(LIBDIR)/srdma

# The Python half -----------------------------------------------------------

# Extension modules of the library, of the load generators, and of the tests.
NATIVE := core bench tests
NATIVE_DIRS := srdma/native bench/python/srdma_bench/native tests/native
NATIVE_SRC := $(foreach d,$(NATIVE_DIRS),$(wildcard $(d)/*.py[xi] $(d)/*.pxd))

native: $(NATIVE:%=$(BUILD)/native-%)
	@:

native-core: $(BUILD)/native-core
	@:

$(BUILD)/native-bench: $(KVS)
$(NATIVE:%=$(BUILD)/native-%): $(BUILD)/native-%: $(NATIVE_SRC) build_native.py \
		$(wildcard csrc/*/*.h csrc/port/*/*.h host/*.h bench/kvs/*.h) $(LIB) $(HOST) | $(PY)
	$(call say,CY,$*)
	$(Q)BUILD=$(BUILD) $(PY) build_native.py $*
	@touch $@

$(PY):
	@.ci/setup demo

setup:
	@.ci/setup test

# Checks --------------------------------------------------------------------

check-c: $(C_TESTS)
	@.ci/check-c $(C_TESTS)

SANITIZER_CC := $(if $(shell command -v clang),clang,$(CC))
asan: native
	+@$(make-quietly) BUILD=$(BUILD)/asan CC=$(SANITIZER_CC) \
		SANITIZE=address,undefined check-c check-bench offload control
	@BUILD=$(abspath $(BUILD))/asan $(PYTEST) -m 'not slow' tests/e2e/test_srdma_control.py

# Standalone benchmark programs: they must succeed without memory leaks.
check-bench: bench
	@$(LADDER) --rounds 1 >/dev/null
	@$(MANY) --qps 2 --qps 70 --burst 3 --rounds 1 --messages 500 >/dev/null
	@$(PRIMITIVES) --ms 1 aes-128-cmac:64 hmac-sha256:64 depth:3 >/dev/null

# Lines and branches of csrc/ that the C tests execute (docs/verification.md), in a
# build of their own without optimisation. COVERAGE_LONG: programs of many minutes.
COVERAGE_LONG := tests/c/simulation/test_transfer% tests/c/simulation/test_congestion_fair.c
.PHONY: coverage run-coverage
coverage:
	+@$(make-quietly) BUILD=$(BUILD)/coverage CC=gcc OPTIMISE=-O0 HARDENING= LTO= WHOLE= \
		CFLAGS=--coverage LDFLAGS=--coverage \
		C_TEST_SRC='$(filter-out $(COVERAGE_LONG),$(C_TEST_SRC))' run-coverage
run-coverage: $(C_TESTS)
	@find $(BUILD) -name '*.gcda' -delete
	@printf '%s\n' $(C_TESTS) | SRDMA_SEEDS=50 LIMIT=1800 xargs -n 8 -P "$$(nproc)" .ci/check-c
	@$(PY) .ci/coverage.py --missed $(BUILD)

# The programs of which several threads share something, with ThreadSanitizer. A child of
# a test that begins threads needs die_after_fork=0.
TSAN_SRC := $(filter $(patsubst %,tests/c/port/test_%.c,port_shm% doorbell ring) \
	$(patsubst %,tests/c/host/test_%.c,control device leg_shm threads) tests/c/verbs/test_loop.c,\
	$(C_TEST_SRC))
.PHONY: tsan
tsan:
	+@TSAN_OPTIONS='die_after_fork=0 suppressions=$(CURDIR)/tests/tsan/suppressions' $(make-quietly) \
		BUILD=$(BUILD)/tsan CC=clang SANITIZE=thread C_TEST_SRC='$(TSAN_SRC)' check-c

# The C tests under valgrind's memcheck (docs/verification.md). MEMCHECK_LONG: programs that
# would take many minutes there. MEMCHECK_UNFIT: valgrind 3.19 has no pidfd_open(), closes a
# connection for which a process has no descriptor (entrance), does not limit the descriptors
# that messages bring (packet, port_shm_link), stops all threads during a close() that lingers
# (closer), replaces free() as relay_secrets does, and needs more address space than
# relay_memory permits. Some tests have frames of some MB.
MEMCHECK_LONG := simulation/test_% session/test_flips session/test_forged memory/test_capability \
	session/test_session_generations relay/test_relay_recovery relay/test_relay_revoke \
	faults/test_faults_ports
MEMCHECK_UNFIT := control/test_entrance offload/test_closer offload/test_packet offload/test_peer \
	port/test_port_shm_link port/test_port_shm_process port/test_port_shm_region \
	relay/test_relay_memory relay/test_relay_secrets
MEMCHECK := valgrind -q --error-exitcode=99 --leak-check=full --max-stackframe=16777216 \
	--errors-for-leak-kinds=definite --show-leak-kinds=definite
.PHONY: memcheck run-memcheck
memcheck:
	+@$(make-quietly) run-memcheck C_TEST_SRC='$(filter-out \
		$(patsubst %,tests/c/%.c,$(MEMCHECK_LONG) $(MEMCHECK_UNFIT)),$(C_TEST_SRC))'
run-memcheck: $(C_TESTS)
	@printf '%s\n' $(C_TESTS) | RUNNER='$(MEMCHECK)' LIMIT=1800 xargs -n 8 -P "$$(nproc)" .ci/check-c

# Constant time (docs/verification.md): a program under valgrind, then the same with
# broken comparisons, which must be reported. The link flags are explained there.
CT := $(BUILD)/tests/ct/check_ct
CT_WRAP := -Wl,--wrap=CRYPTO_memcmp,--wrap=srdma_cmac_sum,--wrap=srdma_provider_verbs
$(CT): $(CT).o $(LIB)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -fno-lto $(CT_WRAP) -o $@ $(filter %.o %.a,$^) $(LIBS)

.PHONY: check-ct check-ct-all
check-ct: $(CT)
	@.ci/check-ct $(CT)

# Every compiler and optimisation, each in a build of its own.
check-ct-all:
	+@for compiler in gcc clang; do for level in -O2 -O3; do \
		echo "  $$compiler $$level"; \
		$(make-quietly) BUILD=$(BUILD)/ct/$$compiler$$level CC=$$compiler \
			OPTIMISE=$$level CFLAGS='-Wno-error -gdwarf-4' check-ct || exit 1; \
	done; done

# The C half for ARM, the CPU of SmartNICs, and the demo between two ARM workers,
# all in qemu-user. ARM64_LONG: tests that would take minutes there.
ARM64 := $(BUILD)/arm64
ARM64_LONG := capability congestion_fair flips relay_fair relay_modes simulation \
	relay_recovery relay_rekey relay_revoke relay_shm session_generations timer transfer \
	transfer_rekey
# qemu-user 7.2 has no preadv2() (event), and threads of its own (map).
ARM64_UNFIT := event map
ARM64_TESTS := $(filter-out $(foreach t,$(ARM64_LONG) $(ARM64_UNFIT),%/test_$(t)),\
	$(C_TEST_SRC:%.c=$(ARM64)/%))
ARM64_LADDER := $(ARM64)/bench/ladder
# Sections that run at the same time share the files of this build.
.PHONY: arm64-programs arm64-ladder arm64-tests
arm64-programs: ARM64_GOALS := offload control nic-programs
arm64-ladder: ARM64_GOALS := $(ARM64_LADDER)
arm64-tests: ARM64_GOALS := offload control $(ARM64_LADDER) $(ARM64_TESTS)
arm64-programs arm64-ladder arm64-tests:
	@.ci/setup arm64
	@mkdir -p $(ARM64)
	+@flock $(ARM64)/lock $(make-quietly) BUILD=$(ARM64) CC=aarch64-linux-gnu-gcc $(ARM64_GOALS)

# The ladder in instructions of an ARM CPU (docs/performance.md), by a plugin of QEMU.
COUNT := $(BUILD)/bench/arm64/count.so
$(COUNT): bench/arm64/count.c
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) -D_GNU_SOURCE -std=c11 -O2 -g -fPIC $(WARNINGS) -shared -o $@ $<
BENCH_ARM64 := PYTHONPATH=bench/python $(PY) -m srdma_bench.arm64 $(ARM64_LADDER) $(COUNT)
bench-arm64: arm64-ladder $(COUNT) | $(PY)
	@$(BENCH_ARM64) --results bench/arm64.md

# Of the ladder one rung only: it must run.
test-arm64: native-core arm64-tests $(COUNT)
	@RUNNER=qemu-aarch64-static .ci/check-c $(ARM64_TESTS)
	@for kind in pldl1keep pstl1keep; do \
		aarch64-linux-gnu-objdump -d $(ARM64)/srdma-offload | grep -q "prfm.*$$kind" || { \
		echo "test-arm64: srdma-offload has no prfm $$kind (csrc/base/prefetch.h)" >&2; \
		exit 1; }; done
	@printf '#!/bin/sh\nexec qemu-aarch64-static %s "$$@"\n' \
		'$(abspath $(ARM64)/srdma-offload)' >$(ARM64)/worker
	@chmod +x $(ARM64)/worker
	@SRDMA_OFFLOAD=$(ARM64)/worker $(PY) -m srdma demo
	@$(BENCH_ARM64) --rung suite

fuzz:
	+@$(make-quietly) BUILD=$(BUILD)/fuzz CC=clang \
		SANITIZE=fuzzer-no-link,address,undefined run-fuzzers

run-fuzzers: $(FUZZERS)
	@.ci/fuzz $(FUZZ_SECONDS) $(FUZZERS)

lint:
	@.ci/setup test
	@echo '  ruff'; .venv/bin/ruff check -q .
	@echo '  ruff format'; .venv/bin/ruff format -q --check .
	@echo '  mypy'; .venv/bin/mypy --no-error-summary
	@$(if $(C_FILES),echo '  clang-format'; \
		clang-format --dry-run -Werror $(C_FILES))
	@echo '  includes'; .ci/includes
	@echo '  phrases'; $(PY) .ci/phrases.py
	@echo '  conformance'; $(PY) .ci/conformance.py
	@echo '  mutants'; $(PY) .ci/mutants.py --check
	@echo '  budgets'; .venv/bin/lizard -w -L 80 -C 15 -a 6 $(BUDGET_DIRS)
	@find $(BUDGET_DIRS) -name '*.[ch]' -o -name '*.py' -o -name '*.pyx' | \
		xargs wc -l | awk '$$1 > 500 && $$2 != "total" \
		{ print $$2 ": " $$1 " lines, at most 500"; bad = 1 } END { exit bad }'

# The listings of docs/protocol.md 14 and 16 and docs/worked-examples.md, from the reference.
examples:
	@$(PY) -m tests.reference.example
	@$(PY) -m tests.reference.ladder
	@$(PY) -m tests.reference.make_examples

format:
	.venv/bin/ruff format -q .
	.venv/bin/ruff check -q --select I --fix .
	$(if $(C_FILES),clang-format -i $(C_FILES))

PYTEST := $(PY) -m pytest -q

.PHONY: test-python test-python-short
PYTHON_TESTS := tests/unit tests/e2e
test-python: native offload control bench attack run host-tests
	@$(PYTEST) $(PYTHON_TESTS)
# Tests that take long are marked `slow` (docs/testing.md).
test-python-short: native offload bench attack
	@$(PYTEST) -m 'not soak and not slow' tests/unit

# Two VMs that may run in parallel, each with one CPU: RXE_JOB has normal work,
# RXE_FAULTS has faults; both take about the same time. The limit of 1,800 s ends
# a VM that hangs; normal runs take a third of it. Each test also has a limit of
# its own. A test that this limit does not interrupt prints the stacks of its
# threads after 330 s.
RXE_FAULTS := $(patsubst %,tests/rxe/inside/test_%.py,\
	kill leg_dies netem rekey_load wire_dies)
# The last test needs a privilege that root may lack in a container.
RXE_JOB := $(filter-out $(RXE_FAULTS),$(wildcard tests/rxe/inside/test_*.py)) \
	tests/unit/test_offload_workers.py::test_memory_of_each_process_is_locked
IN_VM := $(PY) tests/rxe/vm.py --timeout 1800 -- $(PYTEST) \
	-p no:cacheprovider --durations 10 -o faulthandler_timeout=330
test-rxe: test-rxe-job test-rxe-faults
test-rxe-job: native offload control attack run host-tests
	@$(IN_VM) $(RXE_JOB)
test-rxe-faults: native offload
	@$(IN_VM) $(RXE_FAULTS)

# Real RoCE frames between two VMs, with an attacker on the cable.
test-two-vms: native offload
	@$(PY) tests/rxe/two_vms.py

# Hosts with NICs that are other computers (docs/testing.md, *The stand*): one x86
# machine for both hosts, or one for each.
.PHONY: firmware test-smartnic test-smartnic-full
firmware: arm64-programs
	@.ci/setup smartnic
	@$(PY) -m tests.smartnic.image $(ARM64) $(BUILD)/smartnic
# The firmware with Python and srdma, for a NIC that runs the agent. The variable
# makes Python use the settings of Debian's Python for arm64.
.PHONY: native-arm64 firmware-python
native-arm64: arm64-programs
	@.ci/setup smartnic
	+@_PYTHON_SYSCONFIGDATA_NAME=_sysconfigdata__aarch64-linux-gnu \
		flock $(ARM64)/lock $(make-quietly) BUILD=$(ARM64) CC=aarch64-linux-gnu-gcc native-core
firmware-python: firmware native-arm64
	@$(PY) -m tests.smartnic.python_image $(BUILD)/smartnic
test-smartnic: native firmware
	@$(PY) tests/smartnic/stand.py --timeout 600
test-smartnic-full: native firmware-python
	@$(PY) tests/smartnic/stand.py --timeout 1200 --full --hosts 2 --middle
	@$(PY) tests/smartnic/stand.py --timeout 1200 --full --hosts 2 --middle --agent nic

# Sections and commands ------------------------------------------------------
#
# A section is a target whose output goes to a log (.ci/section). Sections that
# do not build the same files run beside each other, as many as there are cores
# (-j). Everything that several of them need is built before.

# Priorities: a machine has a clock of its own, on which links end after seconds of
# silence. It goes before programs of this machine, which also wait for each
# other, and these go before sections that compute.
machine-section = +@.ci/section '$(1)' $(make-quietly) $(2)
section = +@nice -n 5 .ci/section '$(1)' $(make-quietly) $(2)
long-section = +@nice -n 15 .ci/section '$(1)' $(make-quietly) $(2)

.PHONY: $(addprefix section-,packages python-packages compile native lint c c-short asan simulation-short simulation mutants \
	python-short python-unit python-e2e fuzz-short fuzz ct models main-job bench arm64 rxe-job rxe-faults two-vms smartnic)
# Run by test-all only: it takes more than half of the time of all C tests.
C_TESTS_LONG := tests/c/simulation/test_transfer.c
section-packages:
	@.ci/section packages .ci/setup test packages
section-python-packages:
	@.ci/section 'Python packages' .ci/setup test python
section-compile:
	$(call section,compile,lib run offload control host-tests $(C_TESTS))
section-native:
	$(call section,native,native bench attack)
section-lint:
	$(call long-section,lint,lint)
section-c:
	$(call long-section,C tests,check-c)
section-c-short:
	$(call section,C tests,check-c C_TEST_SRC='$(filter-out $(C_TESTS_LONG),$(C_TEST_SRC))')
section-asan:
	$(call long-section,C tests under ASan and UBSan,asan)
section-simulation-short:
	$(call section,simulation,simulation SEEDS=100)
section-simulation:
	$(call long-section,simulation,simulation)
# A third of the mutants, another one with each commit. `make soak` runs all.
section-mutants:
	$(call long-section,mutants,mutants SHARE=$(or $(SHARE),$$(($$(git rev-list --count HEAD 2>/dev/null || echo 0) % 3))/3))
section-python-short:
	$(call section,Python unit tests,test-python-short)
section-python-unit:
	$(call section,Python unit tests,test-python PYTHON_TESTS=tests/unit)
section-python-e2e:
	$(call section,Python end-to-end tests,test-python PYTHON_TESTS=tests/e2e)
section-fuzz-short:
	$(call section,fuzzing,fuzz FUZZ_SECONDS=2)
section-fuzz:
	$(call long-section,fuzzing,fuzz FUZZ_SECONDS=5)
section-models:
	$(call long-section,models,models)
section-ct:
	$(call long-section,constant time,check-ct)
section-main-job:
	$(call section,main job,demo)
section-bench:
	$(call section,benchmarks,bench-quick)
section-arm64:
	$(call long-section,ARM,test-arm64)
section-rxe-job:
	$(call machine-section,SoftRoCE in a VM: work,test-rxe-job)
section-rxe-faults:
	$(call machine-section,SoftRoCE in a VM: faults,test-rxe-faults)
section-two-vms:
	$(call machine-section,two VMs,test-two-vms)
section-smartnic:
	$(call machine-section,SmartNICs,test-smartnic)

.PHONY: test-build test-all
# The compilers run while pip installs.
test-build: section-packages
	+@$(make-quietly) section-python-packages section-compile
	+@$(make-quietly) section-native

# The short test suite, in minutes. docs/testing.md describes the sections.
test: test-build
	+@$(make-quietly) $(addprefix section-,python-short c-short lint fuzz-short simulation-short main-job)
	@printf '==== make test: all sections passed\n'

# The whole test suite; the long sections start first.
test-all: test-build
	+@$(make-quietly) $(addprefix section-,python-e2e rxe-job python-unit rxe-faults asan mutants arm64 simulation \
		c fuzz two-vms smartnic lint bench models ct main-job)
	@printf '==== make test-all: all sections passed\n'

demo:
	@.ci/setup demo
	+@$(make-quietly) offload native-core
	@$(PY) -m srdma demo

# Uses rxe on this machine if its module can be loaded, else in a VM.
demo-rxe:
	@.ci/setup rxe
	+@$(make-quietly) offload native-core
	@if [ "$$(id -u)" -eq 0 ] && modprobe -q rdma_rxe; then \
		$(PY) -m srdma demo --device rxe; \
	else \
		$(PY) tests/rxe/vm.py --timeout 540 -- $(PY) -m srdma demo --device rxe; \
	fi

soak: native offload attack run host-tests
	@.ci/setup test
	@$(PYTEST) -m soak tests/unit tests/e2e
	@SRDMA_FUZZ=20000 $(PYTEST) tests/unit/test_fuzz_inputs.py
	@$(IN_VM) -m soak tests/rxe/inside/test_flood.py tests/rxe/inside/test_run.py
	+@$(make-quietly) simulation SEEDS=$(or $(SEEDS),200000)
	+@$(make-quietly) simulation-sanitized transfer forged mutants fuzz check-ct-all models-large
	+@$(make-quietly) coverage tsan memcheck

# The whole state space of each model of tests/models, and the errors of their twins.
.PHONY: models models-large
models:
	@$(PY) -m tests.models.check
models-large:
	@$(PY) -m tests.models.check --large

# Random runs of two relays in virtual time: SEEDS runs of about 5,000 packets.
simulation: SEEDS ?= 2000
simulation: $(BUILD)/tests/c/simulation/test_simulation
	@SRDMA_SEEDS=$(SEEDS) $<

# A digest of each of SEEDS runs, to compare two builds (test_simulation.c).
digests: SEEDS ?= 2000
digests: $(BUILD)/tests/c/simulation/test_simulation
	@SRDMA_SEEDS=$(SEEDS) SRDMA_DIGESTS=$(BUILD)/digests.txt $<

# The simulation under the sanitizers.
SANITIZED_SEEDS ?= 2000
simulation-sanitized:
	@.ci/setup test
	+@$(make-quietly) BUILD=$(BUILD)/asan CC=$(SANITIZER_CC) \
		SANITIZE=address,undefined \
		$(BUILD)/asan/tests/c/simulation/test_simulation
	@SRDMA_SEEDS=$(SANITIZED_SEEDS) $(BUILD)/asan/tests/c/simulation/test_simulation

# Long transfers with an attacker on the wire, PACKETS packets each.
PACKETS ?= 1000000
transfer: $(BUILD)/tests/c/simulation/test_transfer
	@SRDMA_PACKETS=$(PACKETS) $<

# FORGED forged packets at a session in each of two key modes.
FORGED ?= 100000000
forged: $(BUILD)/tests/c/session/test_forged
	@SRDMA_PACKETS=$(FORGED) $<

# The C tests must detect each deliberate fault of tests/mutants/*.patch.
# MUTANTS=NAME... are the faults to try, by default all; SHARE=K/N takes every
# Nth fault from the Kth on (K from 0).
mutants:
	@$(PY) .ci/mutants.py $(if $(SHARE),--share $(SHARE)) $(MUTANTS)

# Draws docs/pictures/*.svg from the .dot files; needs graphviz.
.PHONY: pictures
pictures:
	@command -v dot >/dev/null || { echo 'pictures: dot is missing: apt-get install graphviz' >&2; exit 1; }
	@for text in docs/pictures/*.dot; do dot -Tsvg "$$text" -o "$${text%.dot}.svg"; done

clean:
	rm -rf $(BUILD) bench/python/build $(NATIVE_DIRS:%=%/*.so) srdma/_*.so

distclean: clean
	rm -rf .venv srdma.egg-info bench/python/srdma_bench.egg-info attack/srdma_attack.egg-info
