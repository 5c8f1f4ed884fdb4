/* Texts of --help and --version. */
#include "options.h"

static const char help[] =
	"Usage: srdma-offload --name NAME --wire-dev DEVICE [OPTION...]\n"
	"The worker of one NIC: seals, opens and checks the packets of its hosts.\n"
	"\n"
	"  --name NAME          name of this worker (default: file name of --control\n"
	"                       without .sock)\n"
	"  --control PATH       control socket\n"
	"                       (default: $XDG_RUNTIME_DIR/srdma/NAME.sock)\n"
	"  --host-dev DEVICE    device to the hosts: shm (default) or an RDMA device\n"
	"  --wire-dev DEVICE    device to other workers: shm:DIR, udp (RoCEv2 datagrams,\n"
	"                       needs no RDMA device) or an RDMA device\n"
	"  --wire-listen IP:PORT  local address of the wire. udp: IP, IP:PORT, [IPv6] or\n"
	"                       [IPv6]:PORT (default port: 4791). RDMA device: IP:PORT\n"
	"                       to listen on (default: the device's first IPv4\n"
	"                       address, else its first global IPv6 address; any port)\n"
	"  --wire-trains        udp over IPv4: packets without ICRC, in trains, to\n"
	"                       workers that have this option too (default: no trains\n"
	"                       over IPv4)\n"
	"  --host-listen IP[:PORT]  local address for the hosts, with an RDMA device: IP,\n"
	"                       IP:PORT, [IPv6] or [IPv6]:PORT (default: as for\n"
	"                       --wire-listen)\n"
	"  --gid ADDRESS        GID of this worker, an IPv4 or IPv6 address (default:\n"
	"                       that of --wire-listen if it names one; otherwise none)\n"
	"  --workers N          number of worker processes, 1..64 (default 1); worker\n"
	"                       process i has NAME.i, PATH.i and the listening port + i\n"
	"  --pin CORES          one core per worker process, in this order: 0,2-5\n"
	"  --agent-uid UID      only the agent, of user UID or root, may give keys to QPs\n"
	"                       (default: every client may until an agent connects)\n"
	"  --memfd-only         with --host-dev shm: refuse regions without a memfd\n"
	"                       (default: copy them, where the kernel permits)\n"
	"  --allow-unprotected  permit QPs of level none, for benchmarks only\n"
	"  --mtu BYTES          maximum payload of a packet, 256..4096 (default 4096)\n"
	"  --window N           unacknowledged request packets accepted per QP, 1..1024\n"
	"                       (default 512), limited by the buffers available\n"
	"  --reads N            response slots for READs and atomics per QP, 1..128\n"
	"                       (default 16)\n"
	"  --key-cache N        cached keys of QPs in key mode pd, and of memory,\n"
	"                       0..65536 (default 1024); 0: derive them per packet\n"
	"  --max-qps N          maximum number of QPs of a worker process, 1..1048576\n"
	"                       (default 4096); together at most 8388608\n"
	"  --table-memory MIB   maximum memory of tables that QPs allocate on demand,\n"
	"                       1..1048576 (default: no limit but those of the QPs)\n"
	"  --ping SECONDS       send a keepalive after SECONDS without a packet from the\n"
	"                       peer (default 5, fractions allowed)\n"
	"  --silence SECONDS    end a QP after SECONDS without a packet from the peer, or\n"
	"                       without a path to it (default 15; more than --ping)\n"
	"  --rekey-packets N    change a QP's key after N packets, 1..16777216 (default\n"
	"                       16777216)\n"
	"  --rekey-bytes N      change a QP's key after N bytes of payload,\n"
	"                       1..68719476736 (default 68719476736)\n"
	"  --rekey-seconds SECONDS  change a QP's key after SECONDS, 0.01..60 (default\n"
	"                       60)\n"
	"  --provider NAME      crypto provider: openssl, ipsec-mb or nettle (default:\n"
	"                       the first of ipsec-mb, nettle, openssl that\n"
	"                       this build has and this CPU suits)\n"
	"  --stats SECONDS      print a JSON line of counters on stdout every SECONDS;\n"
	"                       SIGUSR1 prints one at any time\n"
	"  --log-level LEVEL    error, info (default) or debug\n"
	"  --help               print this text and exit\n"
	"  --version            print the version and exit\n";

const char *options_help(void)
{
	return help;
}

const char *options_version(void)
{
	return "srdma-offload 0.1.0 (srdma-1)\n";
}
