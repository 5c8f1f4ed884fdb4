#include "control/identity.h"

#include <string.h>

#include <openssl/x509v3.h>

/* The length of a scheme (RFC 3986 3.1), or 0. */
static size_t scheme(const char *uri)
{
	if (!strspn(uri, "abcdefghijklmnopqrstuvwxyz"
			 "ABCDEFGHIJKLMNOPQRSTUVWXYZ"))
		return 0;
	return strspn(uri, "abcdefghijklmnopqrstuvwxyz"
			   "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-.");
}

int identity_is_valid(const char *uri, size_t len)
{
	char text[IDENTITY_MAX + 1];
	size_t at;

	if (len > IDENTITY_MAX)
		return 0;
	for (size_t i = 0; i < len; i++)
		if (uri[i] < 0x20 || uri[i] > 0x7e)
			return 0;
	memcpy(text, uri, len);
	text[len] = '\0';
	at = scheme(text);
	return at && strncmp(text + at, "://", 3) == 0 &&
	       strcspn(text + at + 3, "/?#") > 0;
}

/* Returns how many URIs the names have; the first is *uri. */
static int uris(const GENERAL_NAMES *names, const ASN1_IA5STRING **uri)
{
	int found = 0;

	for (int i = 0; i < sk_GENERAL_NAME_num(names); i++) {
		const GENERAL_NAME *name = sk_GENERAL_NAME_value(names, i);

		if (name->type == GEN_URI && !found++)
			*uri = name->d.uniformResourceIdentifier;
	}
	return found;
}

static int take_uri(char out[IDENTITY_MAX + 1], const GENERAL_NAMES *names,
		    struct reason *r)
{
	const ASN1_IA5STRING *uri = NULL;
	const int found = uris(names, &uri);
	size_t len;

	if (found != 1)
		return reason_set(r, "identity",
				  "a certificate with %d URIs as subject "
				  "alternative names: it must name exactly one "
				  "identity",
				  found);
	len = (size_t)ASN1_STRING_length(uri);
	if (!identity_is_valid((const char *)ASN1_STRING_get0_data(uri), len))
		return reason_set(r, "identity",
				  "a certificate whose URI is no identity: it "
				  "must be one such as "
				  "spiffe://example.org/host-a, of at most %d "
				  "bytes",
				  IDENTITY_MAX);
	memcpy(out, ASN1_STRING_get0_data(uri), len);
	out[len] = '\0';
	return 0;
}

int identity_of(char out[IDENTITY_MAX + 1], X509 *cert, struct reason *r)
{
	GENERAL_NAMES *names;
	int critical, rc;

	names = X509_get_ext_d2i(cert, NID_subject_alt_name, &critical, NULL);
	if (!names && critical != -1)
		return reason_set(r, "identity",
				  "a certificate with unreadable subject "
				  "alternative names");
	rc = take_uri(out, names, r);
	GENERAL_NAMES_free(names);
	return rc;
}
