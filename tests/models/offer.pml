/*
 * The first exchange: OFFER, CHOICE, CONFIRM (docs/protocol.md 8.1 to 8.3), as if
 * TLS did not protect the order and the origin of messages. The attacker drops,
 * repeats and reorders them, and puts messages of an earlier exchange of the same
 * two ends, in which both allowed the weak suite only, in place of new ones.
 *
 * Two ends that are done agree, and use the best suite that both allow now; a
 * server that is done speaks with a client of this exchange.
 *
 * Twins (-DNAME) are errors, of which each must violate an assertion.
 */
#define WEAK	 1
#define STRONG	 2
#define BOTH	 3 /* a list of both suites, STRONG first */
#define OLD	 1 /* random of the earlier exchange */
#define NEW	 2

mtype = { OFFER, CHOICE, CONFIRM };

/* The transcript hash: an injective function of the two messages. */
#ifdef HASH_WITHOUT_RANDOM
#define HASH(list, r, suite, q) ((list) * 4 + (suite))
#elif defined(HASH_WITHOUT_OFFER)
#define HASH(list, r, suite, q) ((suite) * 4 + (q))
#else
#define HASH(list, r, suite, q) ((list) * 64 + (r) * 16 + (suite) * 4 + (q))
#endif

/* kind, list or suite or hash, random */
chan to_server = [2] of { mtype, short, byte };
chan to_client = [2] of { mtype, short, byte };

byte client_allows, server_allows;
byte client_suite, server_suite;
short client_hash, server_hash;
bool client_confirmed, client_done, server_done, halted;

#define BEST(list) (((list) & STRONG) && (server_allows & STRONG) -> STRONG : WEAK)

proctype Client()
{
	short suite, h;
	byte r;

	to_server!OFFER, client_allows, NEW;
	to_client?CHOICE, suite, r;
	if
	:: !(client_allows & suite) -> halted = true; goto done
	:: (client_allows & suite)
	fi;
	client_suite = suite;
	client_hash = HASH(client_allows, NEW, suite, r);
	atomic { client_confirmed = true; to_server!CONFIRM, client_hash, 0 };
	to_client?CONFIRM, h, r;
	if
#ifdef HASH_UNCHECKED
	:: true -> client_done = true
#else
	:: h == client_hash -> client_done = true
	:: h != client_hash -> halted = true
#endif
	fi;
done:	skip
}

proctype Server()
{
	short list, h;
	byte r;

	to_server?OFFER, list, r;
	if
	:: !(list & server_allows) -> halted = true; goto done
	:: (list & server_allows)
	fi;
	server_suite = BEST(list);
	server_hash = HASH(list, r, server_suite, NEW);
	to_client!CHOICE, server_suite, NEW;
	to_server?CONFIRM, h, r;
	if
#ifdef HASH_UNCHECKED
	:: true
#else
	:: h != server_hash -> halted = true; goto done
	:: h == server_hash
#endif
	fi;
	to_client!CONFIRM, server_hash, 0;
	server_done = true;
done:	skip
}

proctype Attacker()
{
	mtype kind;
	short a;
	byte r;
	byte acts;

endless:
	do
	:: atomic { acts < 4 && nempty(to_server) -> to_server??kind, a, r; acts++; a = 0; r = 0; kind = 0 }
	:: atomic { acts < 4 && nempty(to_client) -> to_client??kind, a, r; acts++; a = 0; r = 0; kind = 0 }
	:: atomic { acts < 4 && nempty(to_server) && nfull(to_server) ->
		to_server?<kind, a, r>; to_server!kind, a, r; acts++; a = 0; r = 0; kind = 0 }
	:: atomic { acts < 4 && nfull(to_server) -> to_server!OFFER, WEAK, OLD; acts++ }
	:: atomic { acts < 4 && nfull(to_client) -> to_client!CHOICE, WEAK, OLD; acts++ }
	:: atomic { acts < 4 && nfull(to_server) ->
		to_server!CONFIRM, HASH(WEAK, OLD, WEAK, OLD), 0; acts++ }
	:: atomic { acts < 4 && nfull(to_client) ->
		to_client!CONFIRM, HASH(WEAK, OLD, WEAK, OLD), 0; acts++ }
	od
}

/* At every time. */
active proctype Monitor()
{
endless:
	do
	:: atomic {
		client_done && server_done ->
		assert(client_suite == server_suite);
		assert(client_suite & client_allows & server_allows);
		assert(client_suite == BEST(client_allows));
		break
	}
	:: atomic { client_done -> assert(client_allows & client_suite); break }
	:: atomic {
		server_done -> assert(client_confirmed && client_hash == server_hash);
		break
	}
	od
}

init
{
	atomic {
		if
		:: client_allows = WEAK
		:: client_allows = STRONG
		:: client_allows = BOTH
		fi;
		if
		:: server_allows = WEAK
		:: server_allows = STRONG
		:: server_allows = BOTH
		fi;
		run Client(); run Server(); run Attacker()
	}
}
