/*
 * Log lines on stderr: one JSON object each, at most 50 per second. No field has
 * a secret. A line that stderr does not take at once is dropped, so that the
 * reader of stderr delays nothing; the next line then tells how many were.
 */
#ifndef CONTROL_AUDIT_H
#define CONTROL_AUDIT_H

#include <stddef.h>
#include <stdint.h>

enum { AUDIT_LINE_MAX = 2048 }; /* below PIPE_BUF */

/* A line under construction. */
struct audit {
	char line[AUDIT_LINE_MAX];
	size_t len;
};

/* time: ms since 1970. */
void audit_begin(struct audit *a, const char *event, int64_t time);
/* Bytes outside printable ASCII are replaced by '?', and the text is cut if the
 * line becomes too long. */
void audit_text(struct audit *a, const char *key, const char *text);
void audit_number(struct audit *a, const char *key, int64_t number);
/* Completes the line with its newline. Returns its length. */
size_t audit_end(struct audit *a);

/* Writes a line about now. Pairs of key and text, both char *, then NULL. */
void audit_write(const char *event, ...) __attribute__((sentinel));

/* As audit_end(), and writes the line. */
void audit_put(struct audit *a);

/* ms since 1970. */
int64_t audit_now(void);

#endif
