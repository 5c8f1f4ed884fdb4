/*
 * AEAD ciphers of OpenSSL by the functions of their provider
 * (<openssl/core_dispatch.h>, provider-cipher(7)), which EVP calls too. EVP's
 * own work per call takes more instructions than a short packet's cipher
 * (docs/performance.md). EVP's checks of arguments are missing here: the caller
 * passes complete pointers (srdma_suite_complete) and the sizes of the row.
 * Private to csrc/crypto.
 */
#ifndef SRDMA_OPENSSL_CIPHER_H
#define SRDMA_OPENSSL_CIPHER_H

#include <openssl/core_dispatch.h>
#include <openssl/evp.h>

#include "crypto/suite.h"

struct srdma_openssl_cipher {
	EVP_CIPHER *cipher; /* keeps the provider loaded */
	void *ctx;	    /* context of the provider, which wipes it */
	OSSL_FUNC_cipher_newctx_fn *new_ctx;
	OSSL_FUNC_cipher_freectx_fn *free_ctx;
	/* by enum srdma_suite_use; both have the same type */
	OSSL_FUNC_cipher_encrypt_init_fn *init[2];
	OSSL_FUNC_cipher_update_fn *update;
	OSSL_FUNC_cipher_final_fn *final;
	OSSL_FUNC_cipher_get_ctx_params_fn *get;
	size_t key_len, iv_len;
};

/*
 * Makes a context without a key. Returns 0, -ENOMEM, or -EIO: OpenSSL has no
 * cipher of the row's algorithm, its sizes are not the row's, or its provider
 * lacks one of the functions, or has several algorithms of this name, of which
 * EVP does not tell the one that it selected. On failure c is all zero.
 */
int srdma_openssl_cipher_create(struct srdma_openssl_cipher *c,
				const struct srdma_suite *s);

/* Wipes the key. An all-zero c is allowed. */
void srdma_openssl_cipher_destroy(struct srdma_openssl_cipher *c);

/* Sets the key and the direction of the following packets, in place. Returns 0
 * or -EIO. */
int srdma_openssl_cipher_key(struct srdma_openssl_cipher *c,
			     enum srdma_suite_use use, const uint8_t *key);

/*
 * Begins a packet in the direction for which the key was set. tag: for opening,
 * the tag_len bytes that the packet's tag is compared with; unused for sealing.
 * Returns 0 or -EIO: also for a packet to open without a tag, which a provider
 * would not compare with anything.
 */
int srdma_openssl_cipher_begin(struct srdma_openssl_cipher *c,
			       enum srdma_suite_use use, const uint8_t *nonce,
			       const uint8_t *tag, size_t tag_len);

/* Adds associated data, in pieces of any length. Returns 0 or -EIO. */
int srdma_openssl_cipher_add(struct srdma_openssl_cipher *c, const uint8_t *ad,
			     size_t len);

/* Processes len bytes of text into out, of which OCB holds back an incomplete
 * last block. *done: bytes written. Returns 0 or -EIO. */
int srdma_openssl_cipher_text(struct srdma_openssl_cipher *c, uint8_t *out,
			      size_t *done, const uint8_t *in, size_t len);

/*
 * Ends a packet that is sealed: writes the text that was held back to out, which
 * has room for `room` bytes, and computes the tag. *done: bytes written. Returns
 * 0 or -EIO.
 */
int srdma_openssl_cipher_end(struct srdma_openssl_cipher *c, uint8_t *out,
			     size_t room, size_t *done);

/*
 * Ends a packet that is opened, as srdma_openssl_cipher_end(), and compares the
 * tag. Returns 0, or -EBADMSG if the provider refuses, as it does for a wrong
 * tag.
 */
int srdma_openssl_cipher_judge(struct srdma_openssl_cipher *c, uint8_t *out,
			       size_t room, size_t *done);

/* The tag of the packet that was sealed last. Returns 0 or -EIO. */
int srdma_openssl_cipher_tag(struct srdma_openssl_cipher *c, uint8_t *tag,
			     size_t tag_len);

#endif
