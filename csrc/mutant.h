/*
 * Deliberate faults. `make mutants` builds with SRDMA_MUTANTS and makes one of
 * them at a time, to see that the storms notice. Elsewhere there are none.
 */
#ifndef SRDMA_MUTANT_H
#define SRDMA_MUTANT_H

enum srdma_mutant {
	SRDMA_MUTANT_ACK_REUSES_NUMBER = 1,
	SRDMA_MUTANT_WINDOW_BEFORE_TAG, /* the window moves before it */
	SRDMA_MUTANT_READ_REPLAYED, /* READ executed twice under one number */
	SRDMA_MUTANT_ONE_BYTE_TOO_FAR,
	SRDMA_MUTANT_NO_PROOF,	     /* a wrong proof is taken */
	SRDMA_MUTANT_REVOKED_EARLY,  /* DMA of the revoked range goes on */
	SRDMA_MUTANT_EXECUTED_AGAIN, /* what is behind the position */
	SRDMA_MUTANT_EXECUTED_EARLY, /* what is beyond it */
	SRDMA_MUTANT_ACKED_BEFORE_DMA,
	SRDMA_MUTANT_ANSWER_BY_ORDER, /* matched by it */
	SRDMA_MUTANT_ANSWERED_TWICE,  /* counts twice */
	SRDMA_MUTANT_DONE_WHEN_SENT,
	SRDMA_MUTANT_FENCE_IGNORED,
	SRDMA_MUTANT_CREDIT_IGNORED,
	SRDMA_MUTANT_DEADLINE_IGNORED,
	SRDMA_MUTANT_TIMER_IGNORED,
	SRDMA_MUTANT_PLAIN_ON_THE_WIRE,
	SRDMA_MUTANT_NONCE_OF_HALF_THE_NUMBER,
	SRDMA_MUTANT_RIGHTS_IGNORED,
	SRDMA_MUTANT_PD_IGNORED,
	SRDMA_MUTANT_EPOCH_WITHOUT_ACK, /* begins before the last was seen */
	SRDMA_MUTANT_EPOCH_LIVES_ON,	/* its key, behind the window */
	SRDMA_MUTANT_NUMBER_AGAIN_AT_REKEY,
	SRDMA_MUTANT_SECRET_IGNORED,   /* a new one */
	SRDMA_MUTANT_EPOCH_BEFORE_TAG, /* begins before it is verified */
	SRDMA_MUTANT_NO_LAST_WORDS,  /* no packets of a key are kept for them */
	SRDMA_MUTANT_SECRET_DROPPED, /* a new one, when the chain wins */
	SRDMA_MUTANT_WIRE_TRUSTED_EARLY, /* before a packet verified there */
	SRDMA_MUTANT_FLIGHTS_FORGOTTEN,	 /* when it came again */
	SRDMA_MUTANT_ATOMIC_AGAIN,	 /* executed for a duplicate */
	SRDMA_MUTANT_RESULT_OF_ANOTHER,	 /* atomic, for a duplicate */
	SRDMA_MUTANTS_END,
};

#ifdef SRDMA_MUTANTS
extern int srdma_mutant; /* of the test: 0, or the one to be made */
#define SRDMA_MUTANT(name) (srdma_mutant == SRDMA_MUTANT_##name)
#else
#define SRDMA_MUTANT(name) 0
#endif

#endif
