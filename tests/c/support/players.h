/*
 * Requests of the control socket (docs/local-interface.md 3) from several
 * connections, the players, with uids and processes of the test's choice.
 */
#ifndef SRDMA_TESTS_PLAYERS_H
#define SRDMA_TESTS_PLAYERS_H

#include "requests_impl.h"
#include "support/relay_pair.h"

struct player {
	struct client client;	   /* must be first: send() gets only this */
	struct srdma_ctl_msg last; /* the last answer */
};

/* Side 0 of the pair gets the requests. */
struct scene {
	struct pair pair;
	struct requests *requests;
};

struct player player_make(unsigned connection, int pid, uint32_t uid);

/*
 * Starts the scene, in which connection `owner` opened the leg of side 0.
 * agent_uid, agent_only: as in struct requests_params.
 */
void scene_begin(struct scene *s, unsigned owner, uint32_t agent_uid,
		 int agent_only);
void scene_end(struct scene *s);

/* Sends a request, which gets an answer at once. Returns its status. */
uint32_t ask(struct scene *s, struct player *p, const struct srdma_ctl_msg *m);
/* AGENT with flags 0. */
uint32_t ask_agent(struct scene *s, struct player *p);

/* Fails the test unless the text of the player's last answer contains part. */
void player_says(const struct player *p, const char *part);

#endif
