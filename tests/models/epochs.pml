/*
 * One direction of a QP: packet numbers, epochs, the replay window, new secrets
 * (docs/protocol.md 3.5, 4.1, 4.6), against an attacker on the wire.
 *
 * The wire is the set of all packets that were sealed. The attacker delivers any
 * of them at any time, any number of times, or never: this is loss, duplication,
 * reordering and replay. It also sends packets of its own: under no key, and
 * under secrets that it knows, which are those that were withdrawn (8.6).
 *
 * The packets of the other direction are modelled by what they do: an ack that
 * arrives raises `confirmed` to any number that the receiver had reached. The
 * sender may begin an epoch whenever it is permitted, for whatever reason.
 *
 * A key is 4 * secret + steps of the chain. The tag covers the whole number of
 * the epoch; before that, the receiver sees its low 2 bits.
 *
 * Twins (-DNAME) are errors, of which each must violate an assertion.
 */
#ifndef SEALS
#define SEALS 6 /* packets */
#endif
#define FAILS	1 /* seals that fail */
#define WINDOW	4
#define SECRETS 2 /* new secrets */
#define NONE	255
#define BIT(n)	(1 << (n))

typedef Packet {
	byte epoch, key
};
Packet wire[SEALS + 2]; /* by number; key NONE: was not sealed */

/* The sender. */
byte next = 1;
byte tx_e, tx_key, tx_first = 1;
byte tx_waits; /* secret that waits; 0: none */
byte confirmed; /* highest number that an ack confirmed */
byte fails;

/* The receiver. */
byte rx_e, rx_key, rx_first, highest;
byte before = NONE; /* key of the previous epoch while it is live */
byte rx_waits;
short seen; /* numbers that the window knows, as bits */

/* What the assertions need. */
short used; /* numbers that the cipher has used */
short accepted; /* honest packets that were accepted */
byte made; /* secrets that were made, numbered from 1 */
byte told; /* the last secret that was given to the sender or withdrawn */
byte withdrawn; /* as bits */
bool unsure; /* twin SENDER_FIRST: the receiver has not got the secret yet */

#ifdef NOT_CONFIRMED
#define MAY true
#else
#define MAY (confirmed >= tx_first)
#endif

inline begin_epoch()
{
	if
	:: tx_waits -> tx_key = 4 * tx_waits; tx_waits = 0
	:: else -> tx_key++
	fi;
	tx_e++;
	tx_first = next
}

/* Takes the next number and runs the cipher, which may fail. */
inline seal()
{
	if
	:: MAY && (tx_waits || tx_key % 4 < 2) -> begin_epoch()
	:: !(MAY && tx_waits)
	fi;
	assert(!(used & BIT(next))); /* no nonce is used twice */
	used = used | BIT(next);
	if
	:: fails < FAILS ->
		fails++;
#ifndef NUMBER_KEPT
		next++
#endif
	:: true ->
		wire[next].epoch = tx_e;
		wire[next].key = tx_key;
		next++
	fi
}

/* Selects the epoch of a packet by its bits. slot: NONE if there is none. */
inline find_epoch(pn, bits)
{
	if
	:: bits == (rx_e & 3) -> slot = rx_e
	:: bits == ((rx_e + 1) & 3) && pn > highest -> slot = rx_e + 1
	:: rx_e > 0 && bits == ((rx_e - 1) & 3) && before != NONE &&
		pn < rx_first -> slot = rx_e - 1
	:: else -> slot = NONE
	fi
}

/* Verifies the tag with the key of the slot. */
inline verify(sent, under)
{
	fresh = false;
	ok = false;
	if
	:: slot != sent
	:: slot == sent && slot == rx_e -> ok = (under == rx_key)
	:: slot == sent && slot < rx_e -> ok = (under == before)
	:: slot == sent && slot > rx_e && slot != NONE ->
		fresh = (rx_waits && under == 4 * rx_waits);
		ok = (fresh || under == rx_key + 1)
	fi
}

/* The first packet of the next epoch was verified. */
inline follow(pn, under)
{
	before = rx_key;
	rx_key = under;
	rx_e = slot;
	rx_first = pn;
	rx_waits = (fresh -> 0 : rx_waits)
}

/* Opens a packet. ok: it was accepted. */
inline open(pn, sent, under)
{
	ok = false;
	if
	:: pn + WINDOW <= highest || (seen & BIT(pn))
	:: else ->
#ifdef WINDOW_BEFORE_TAG
		seen = seen | BIT(pn);
#endif
		find_epoch(pn, (sent & 3));
		verify(sent, under);
#ifdef EPOCH_BEFORE_TAG
		if
		:: slot == rx_e + 1 && !ok -> follow(pn, rx_key + 1)
		:: else
		fi;
#endif
		if
		:: ok ->
			seen = seen | BIT(pn);
			if
			:: slot > rx_e -> follow(pn, under)
			:: else
			fi;
			highest = (pn > highest -> pn : highest);
			if
			:: highest >= rx_first + WINDOW -> before = NONE
			:: else
			fi
		:: else
		fi
	fi
}

/* A sealed packet arrives. */
inline deliver()
{
	/* Honest packets are not refused: those of this and of the next epoch
	 * in the window, and those of the previous epoch while it is live. */
	must = !(accepted & BIT(n)) && n + WINDOW > highest &&
		(wire[n].epoch >= rx_e ||
		 (wire[n].epoch + 1 == rx_e && before != NONE));
	open(n, wire[n].epoch, wire[n].key);
	assert(!ok || !(accepted & BIT(n))); /* never twice */
	assert(ok || !must);
	accepted = (ok -> accepted | BIT(n) : accepted)
}

/* An exchange of new secrets: REKEY rx, then REKEY tx. */
#ifdef SENDER_FIRST
#define TAKE made < SECRETS && !tx_waits && told == made -> \
		made++; tx_waits = made; told = made; unsure = true
#define GIVE unsure && !rx_waits -> rx_waits = made; unsure = false
#else
#define TAKE made < SECRETS && !rx_waits && told == made -> \
		made++; rx_waits = made
#define GIVE told < made && !tx_waits -> told = made; tx_waits = made
#endif

/* The connection was lost before REKEY tx: the receiver withdraws the secret. */
inline withdraw()
{
	withdrawn = withdrawn | BIT(made);
	told = made;
#ifndef WITHDRAWN_KEPT
	rx_waits = 0
#endif
}

init
{
	byte n, slot;
	bool ok, must, fresh;

	d_step {
		n = 0;
		do
		:: n <= SEALS -> wire[n].key = NONE; n++
		:: else -> break
		od
	}
endless:
	do
	:: atomic { next <= SEALS -> seal(); slot = 0 }
	:: atomic {
		select(n : 1 .. SEALS);
		if
		:: wire[n].key != NONE -> deliver()
		:: wire[n].key == NONE
		fi;
		n = 0; slot = 0; ok = false; must = false; fresh = false
	}
	/* The attacker sends a packet under a secret that was withdrawn. */
	:: atomic {
		withdrawn ->
		select(n : 1 .. SEALS);
		if
		:: withdrawn & BIT(1) -> open(n, rx_e + 1, 4)
		:: withdrawn & BIT(2) -> open(n, rx_e + 1, 8)
		fi;
		assert(!ok);
		n = 0; slot = 0; ok = false; fresh = false
	}
	/* The attacker sends a packet with a wrong tag. */
	:: atomic {
		select(n : 1 .. SEALS);
		open(n, rx_e + 1, NONE);
		assert(!ok);
		n = 0; slot = 0; ok = false; fresh = false
	}
	/* An ack arrives. */
	:: atomic {
		confirmed < highest ->
		select(n : confirmed + 1 .. highest);
		confirmed = n; n = 0
	}
	:: atomic { TAKE }
	:: atomic { GIVE }
	:: atomic { told < made -> withdraw() }
	od
}
