#include "control/credentials.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include <openssl/err.h>

#include "offload/wallclock.h"

/* The best groups that this OpenSSL has (docs/protocol.md 8). */
static char groups[][40] = { "X25519MLKEM768:X25519:P-256", "X25519:P-256" };

static const char *last_error(void)
{
	const char *text = ERR_reason_error_string(ERR_peek_last_error());

	return text ? text : "not readable";
}

/* An encrypted key is refused; without this function OpenSSL would read a
 * password from the terminal. */
static int no_password(char *buffer, int size, int writing, void *ctx)
{
	(void)buffer;
	(void)size;
	(void)writing;
	(void)ctx;
	return -1;
}

static int select_protocol(SSL *ssl, const unsigned char **out,
			   unsigned char *out_len, const unsigned char *in,
			   unsigned in_len, void *ctx)
{
	static const unsigned char own[] = CREDENTIALS_ALPN;
	unsigned char *found;

	(void)ssl;
	(void)ctx;
	if (SSL_select_next_proto(&found, out_len, own, sizeof(own) - 1, in,
				  in_len) != OPENSSL_NPN_NEGOTIATED)
		return SSL_TLSEXT_ERR_ALERT_FATAL;
	*out = found;
	return SSL_TLSEXT_ERR_OK;
}

static int set_rules(SSL_CTX *ctx)
{
	unsigned i = 0;

	SSL_CTX_set_options(ctx, SSL_OP_NO_TICKET | SSL_OP_CLEANSE_PLAINTEXT);
	SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS |
				      SSL_MODE_ENABLE_PARTIAL_WRITE);
	SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_verify(
		ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
	SSL_CTX_set_alpn_select_cb(ctx, select_protocol, NULL);
	SSL_CTX_set_default_passwd_cb(ctx, no_password);
	while (i < sizeof(groups) / sizeof(*groups) &&
	       SSL_CTX_set1_groups_list(ctx, groups[i]) != 1)
		i++;
	return i < sizeof(groups) / sizeof(*groups) &&
	       SSL_CTX_set_num_tickets(ctx, 0) == 1 &&
	       SSL_CTX_set_min_proto_version(ctx, TLS1_3_VERSION) == 1;
}

static int load_crl(SSL_CTX *ctx, const char *file)
{
	X509_STORE *store = SSL_CTX_get_cert_store(ctx);
	X509_LOOKUP *lookup = X509_STORE_add_lookup(store, X509_LOOKUP_file());

	return lookup &&
	       X509_load_crl_file(lookup, file, X509_FILETYPE_PEM) > 0 &&
	       X509_STORE_set_flags(store, X509_V_FLAG_CRL_CHECK) == 1;
}

/* Returns 0, or -EPROTO: *r names the file. */
static int load(SSL_CTX *ctx, const struct settings_files *f, struct reason *r)
{
	const char *file = NULL;

	if (SSL_CTX_use_certificate_chain_file(ctx, f->cert) != 1)
		file = f->cert;
	else if (SSL_CTX_use_PrivateKey_file(ctx, f->key, SSL_FILETYPE_PEM) !=
		 1)
		file = f->key;
	else if (SSL_CTX_load_verify_locations(ctx, f->ca, NULL) != 1)
		file = f->ca;
	else if (f->crl && !load_crl(ctx, f->crl))
		file = f->crl;
	if (!file)
		return 0;
	return reason_set(r, "credentials", "%s cannot be used: %s", file,
			  last_error());
}

static int take_certificate(struct credentials *c, struct reason *r)
{
	X509 *cert = SSL_CTX_get0_certificate(c->ctx);
	struct tm begin;

	if (identity_of(c->identity, cert, r))
		return -EPROTO;
	if (ASN1_TIME_to_tm(X509_get0_notBefore(cert), &begin) != 1)
		return reason_set(r, "credentials",
				  "%s has an unreadable notBefore",
				  c->files->cert);
	c->begin = timegm(&begin);
	return 0;
}

static int64_t written(const char *file)
{
	struct stat st;

	if (!file || stat(file, &st) < 0)
		return 0;
	return (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
}

static void look(int64_t out[CREDENTIALS_FILES], const struct settings_files *f)
{
	out[0] = written(f->cert);
	out[1] = written(f->key);
	out[2] = written(f->ca);
	out[3] = written(f->crl);
}

int credentials_open(struct credentials *c, const struct settings_files *files,
		     struct reason *r)
{
	int rc;

	*c = (struct credentials){ .files = files };
	look(c->written, files);
	ERR_clear_error();
	c->ctx = SSL_CTX_new(TLS_server_method());
	if (!c->ctx || !set_rules(c->ctx))
		rc = reason_set(r, "tls", "OpenSSL: %s", last_error());
	else
		rc = load(c->ctx, files, r);
	if (!rc)
		rc = take_certificate(c, r);
	if (rc)
		credentials_close(c);
	return rc;
}

void credentials_close(struct credentials *c)
{
	SSL_CTX_free(c->ctx);
	c->ctx = NULL;
}

int credentials_refresh(struct credentials *c, struct reason *r)
{
	int64_t now[CREDENTIALS_FILES];
	struct credentials next;
	int rc;

	look(now, c->files);
	if (memcmp(now, c->written, sizeof(now)) == 0)
		return 0;
	memcpy(c->written, now, sizeof(now)); /* not read again before another
						 change */
	rc = credentials_open(&next, c->files, r);
	if (rc)
		return rc;
	credentials_close(c);
	*c = next;
	return 0;
}

int credentials_check_clock(const struct credentials *c, int64_t now,
			    struct reason *r)
{
	const time_t seconds = (time_t)now;
	char date[32] = "";
	struct tm tm;

	if (gmtime_r(&seconds, &tm))
		strftime(date, sizeof(date), "%Y-%m-%d %H:%M", &tm);
	if (wallclock_seconds(now) == UINT32_MAX)
		return reason_set(r, "clock",
				  "the clock of the NIC was never set: it is "
				  "at %s: set it",
				  date);
	if (now < c->begin)
		return reason_set(r, "clock",
				  "the clock of the NIC is at %s, before the "
				  "notBefore of its own certificate: set it",
				  date);
	return 0;
}

int credentials_check_peer(const SSL *ssl, const char *peer, struct reason *r)
{
	char identity[IDENTITY_MAX + 1];
	const unsigned char *protocol;
	unsigned len;

	SSL_get0_alpn_selected(ssl, &protocol, &len);
	if (!len)
		return reason_set(r, "tls",
				  "the peer supports no version of this "
				  "protocol (ALPN)");
	if (identity_of(identity, SSL_get0_peer_certificate(ssl), r))
		return -EPROTO;
	if (strcmp(identity, peer))
		return reason_set(r, "identity",
				  "this is %s, which is not allowed: another "
				  "identity is --peer of srdma-control",
				  identity);
	return 0;
}

void credentials_failure(const SSL *ssl, struct reason *r)
{
	const long verify = SSL_get_verify_result(ssl);
	const char *text = ERR_reason_error_string(ERR_peek_error());

	if (verify == X509_V_OK)
		reason_set(r, "tls", "TLS failed: %s",
			   text ? text : "the peer closed the connection");
	else
		reason_set(r, "identity", "the certificate of the peer: %s%s",
			   X509_verify_cert_error_string(verify),
			   verify == X509_V_ERR_CERT_NOT_YET_VALID
				   ? ": compare the clocks of host and NIC"
				   : "");
}
