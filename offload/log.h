/*
 * Log to stderr with three levels. Not for the data path, and never for
 * secrets.
 */
#ifndef OFFLOAD_LOG_H
#define OFFLOAD_LOG_H

enum log_level { LEVEL_ERROR, LEVEL_INFO, LEVEL_DEBUG };

/* Messages above the level are dropped. Initially LEVEL_INFO. */
void log_set_level(enum log_level level);

/* Name of the program in its lines; initially "srdma-offload". A string literal. */
void log_name_program(const char *name);

/*
 * Prefix all lines of this process: "srdma-offload: worker process 2: error:
 * ...".
 */
void log_name_worker(unsigned index);

/*
 * Write one line, "srdma-offload: error: ...". Control characters of the text,
 * which may come from a peer, are replaced by '?'.
 */
void log_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_info(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_debug(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Write a line without prefix, at every level. */
void log_line(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
