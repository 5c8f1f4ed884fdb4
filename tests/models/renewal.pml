/*
 * Exchanges of new secrets, the loss of connections, resumption, and agents that
 * are restarted or replaced (docs/protocol.md 8.5, 8.6). End 0 is the client.
 *
 * The attacker ends connections at any time, with or without the messages that
 * are on their way. It holds one RESUME back and delivers it late, after the
 * client has given up its connection. It cannot forge messages, which TLS protects.
 * The data path
 * is one step, take_up(): the sender begins an epoch with its new secret. It is
 * the subject of epochs.pml.
 *
 * Each exchange has its own number here (`serial`), also across restarts: it is
 * the client's count too. The graph of states has no cycles:
 * therefore every run ends, and `timeout` sees the end of each.
 *
 * Twins (-DNAME) are errors, of which each must violate an assertion.
 */
#ifndef EXCHANGES
#define EXCHANGES 1 /* and one after each resumption */
#endif
#ifndef LOSSES
#define LOSSES 2
#endif
#define RESTARTS 1

mtype = { RENEW, TAKEN, RESUME };
mtype = { idle, offered, taking, said, heard, giving, resuming };

typedef Worker {
	byte tx, tx_waits; /* secret in use, and one that waits; 0: none */
	byte rx, rx_waits;
	byte accepted, given; /* REKEY rx and REKEY tx so far */
};

typedef Agent {
	mtype at;
	byte connection; /* 0: lost */
	byte secret; /* of the exchange under way */
	byte count; /* of the last exchange that it knows */
};

Worker worker[2];
Agent agent[2];
/* kind, connection, secret or `given`, count */
chan to[2] = [4] of { mtype, byte, byte, byte };

byte connection = 1; /* the newest */
bool up = true;
byte serial, losses, restarts;
byte late_losses; /* by a RESUME that comes late */

#ifdef COUNT_UNCHECKED
#define UNCHECKED true
#else
#define UNCHECKED false
#endif

#define CONNECTED(x) (agent[x].connection == connection && up)

inline send(x, kind, number)
{
	if
	:: CONNECTED(x) -> to[1 - x]!kind, agent[x].connection, number, agent[x].count
	:: !CONNECTED(x) /* the message is lost with its connection */
	fi
}

/* REKEY rx. The worker refuses it while another secret waits. */
inline rekey_rx(x)
{
	worker[x].rx_waits = agent[x].secret;
	worker[x].accepted++
}

/* REKEY tx. The receiver must have the secret already. */
inline rekey_tx(x)
{
	assert(worker[1 - x].rx_waits == agent[x].secret);
	worker[x].tx_waits = agent[x].secret;
	worker[x].given++;
	agent[x].secret = 0;
	agent[x].at = idle
}

/* The end of a connection ends an exchange, except REKEY tx. */
inline lose(x)
{
	agent[x].connection = 0;
	if
#ifdef TAKES_AFTER_LOSS
	:: agent[x].at == taking
	:: agent[x].at != giving && agent[x].at != taking ->
#else
	:: agent[x].at != giving ->
#endif
		agent[x].at = idle; agent[x].secret = 0
	:: agent[x].at == giving
	fi
}

/* Compares the peer's `given` with the secrets that the worker accepted. */
inline withdraw(x, t)
{
	assert(worker[x].accepted == t || worker[x].accepted == t + 1);
	if
	:: worker[x].accepted == t + 1 ->
		assert(worker[x].rx_waits);
#ifndef NOT_WITHDRAWN
		worker[x].rx_waits = 0;
		worker[x].accepted--
#endif
	:: else
	fi
}

proctype Client()
{
	byte c, v, n;

endless:
	do
	/* Begins an exchange when the worker has taken up the last one. */
	:: atomic {
		agent[0].at == idle && CONNECTED(0) && serial < EXCHANGES + losses + late_losses + restarts &&
#ifndef BEGINS_EARLY
		!worker[0].tx_waits && !worker[0].rx_waits &&
#endif
		true ->
		serial++;
		agent[0].secret = serial;
		agent[0].count = serial;
		agent[0].at = offered;
		send(0, RENEW, serial)
	}
	/* Connects again. REKEY tx of a lost exchange is completed first. */
	:: atomic {
		agent[0].connection == 0 &&
#ifndef RESUMES_BEFORE_GIVEN
		agent[0].at != giving &&
#endif
		true ->
		connection++;
		up = true;
		agent[0].connection = connection;
		if
		:: agent[0].at != giving -> agent[0].at = resuming
		:: else
		fi;
		send(0, RESUME, worker[0].given)
	}
	:: atomic {
		to[0]?[RESUME, c, v, n] && agent[0].at != giving ->
		to[0]?RESUME, c, v, n;
		if
		:: c == agent[0].connection && agent[0].at == resuming ->
			withdraw(0, v);
			agent[0].at = idle
		:: else
		fi;
		c = 0; v = 0; n = 0
	}
	od
}

proctype Server()
{
	byte c, v, n;

endless:
	do
	/* A RESUME replaces the connection, which the server may believe alive. */
	:: atomic {
		to[1]?[RESUME, c, v, n] &&
#ifndef ANSWERS_BEFORE_GIVEN
		agent[1].at != giving &&
#endif
		true ->
		to[1]?RESUME, c, v, n;
		if
		:: n < agent[1].count && !UNCHECKED /* late: refused */
		:: n >= agent[1].count || UNCHECKED ->
#ifndef NOT_TOLD
			/* The client learns that its stream was replaced. */
			if
			:: up && agent[1].connection == connection && c != connection ->
				late_losses++;
				up = false
			:: else
			fi;
#endif
			lose(1);
			agent[1].connection = c;
			withdraw(1, v);
			send(1, RESUME, worker[1].given)
		fi;
		c = 0; v = 0; n = 0
	}
	od
}

/* What both ends do in the same way. */
proctype Upkeep(byte x)
{
	byte c, v, n;

endless:
	do
	:: atomic {
		to[x]?[RENEW, c, v, n] && agent[x].at != giving ->
		to[x]?RENEW, c, v, n;
		if
		:: c != agent[x].connection
		:: c == agent[x].connection && x == 1 ->
			/* the server makes its part of the exchange */
			assert(agent[x].at == idle);
			agent[x].secret = v;
			agent[x].count = n;
			agent[x].at = taking;
			send(x, RENEW, v)
		:: c == agent[x].connection && x == 0 ->
			assert(agent[x].at == offered && v == agent[x].secret);
			agent[x].at = taking
		fi;
		c = 0; v = 0; n = 0
	}
	:: atomic {
		(agent[x].at == taking || agent[x].at == heard) &&
		!worker[x].rx_waits ->
		rekey_rx(x);
		send(x, TAKEN, agent[x].secret);
		agent[x].at = (agent[x].at == heard -> giving : said)
	}
	:: atomic {
		to[x]?[TAKEN, c, v, n] ->
		to[x]?TAKEN, c, v, n;
		if
		:: c != agent[x].connection
		:: c == agent[x].connection ->
			assert(v == agent[x].secret);
			assert(agent[x].at == taking || agent[x].at == said);
			agent[x].at = (agent[x].at == said -> giving : heard)
		fi;
		c = 0; v = 0; n = 0
	}
#ifdef GIVES_AT_ONCE
	:: atomic {
		agent[x].at == taking && !worker[x].tx_waits ->
		agent[x].at = giving
	}
#endif
	/* The worker refuses REKEY tx while another secret waits. */
	:: atomic { agent[x].at == giving && !worker[x].tx_waits -> rekey_tx(x) }
	/* The data path takes up the new secret of the sender. */
	:: atomic {
		worker[x].tx_waits ->
		assert(worker[1 - x].rx_waits == worker[x].tx_waits);
		worker[x].tx = worker[x].tx_waits;
		worker[x].tx_waits = 0;
		worker[1 - x].rx = worker[x].tx;
		worker[1 - x].rx_waits = 0
	}
	/* An end notices that its connection ended. */
	:: atomic { agent[x].connection && !CONNECTED(x) -> lose(x) }
	/* An agent is restarted, or another one takes its sessions over. */
	:: atomic {
		restarts < RESTARTS ->
		restarts++;
		agent[x].at = idle;
		agent[x].secret = 0;
		agent[x].connection = 0;
#ifdef COUNT_NOT_STORED
		agent[x].count = worker[x].given; /* that of the exchanges in effect */
#endif
		up = false
	}
	od
}

inline drop(x)
{
	do
	:: nempty(to[x]) -> to[x]?kind, c, v, n
	:: empty(to[x]) -> break
	od;
	kind = 0;
	c = 0;
	v = 0;
	n = 0
}

proctype Attacker()
{
	byte c, v, n;
	byte held, given, count; /* a RESUME: its connection, 0 for none, and fields */
	bool late;
	mtype kind;

endless:
	do
	:: atomic { up && losses < LOSSES -> losses++; up = false }
	:: atomic {
		!late && to[1]?[RESUME, held, given, count] ->
		to[1]?RESUME, held, given, count;
		late = true;
		late_losses = (up -> late_losses + 1 : late_losses);
		up = false /* the client gives the connection up */
	}
	:: atomic {
		held && nfull(to[1]) ->
		to[1]!RESUME, held, given, count;
		held = 0; given = 0; count = 0
	}
	/* The messages that have not arrived end with their connection. */
	:: atomic { !up && nempty(to[0]) -> drop(0) }
	:: atomic { !up && nempty(to[1]) -> drop(1) }
	od
}

#define AGREED(x) (worker[x].tx == worker[1 - (x)].rx && !worker[x].tx_waits && \
	!worker[1 - (x)].rx_waits && \
	worker[x].given == worker[1 - (x)].accepted)

init
{
	atomic {
		agent[0].at = idle; agent[0].connection = 1;
		agent[1].at = idle; agent[1].connection = 1;
		run Client(); run Server(); run Upkeep(0); run Upkeep(1); run Attacker()
	}
	/* Nothing more can happen: both ends use the secrets of the last exchange. */
	timeout ->
	assert(agent[0].at == idle && agent[1].at == idle);
	assert(CONNECTED(0) && CONNECTED(1));
	assert(AGREED(0) && AGREED(1));
	assert(worker[0].tx == serial && worker[1].tx == serial)
}
