/*
 * Log: three levels to stderr. Never on the data path, never a secret.
 */
#ifndef OFFLOAD_LOG_H
#define OFFLOAD_LOG_H

enum log_level { LEVEL_ERROR, LEVEL_INFO, LEVEL_DEBUG };

/* Messages above the level are dropped. At the start: LEVEL_INFO. */
void log_set_level(enum log_level level);

/* The lines of this process name it: "srdma-offload: thread 2: error: ...". */
void log_name_thread(unsigned thread);

/*
 * One line, "srdma-offload: error: ...". Control characters of the text,
 * which a peer may have chosen, are replaced.
 */
void log_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_info(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_debug(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A line of its own form, at every level. */
void log_line(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
