/*
 * Valid UTF-8 without zero bytes is accepted, everything else is refused (RFC
 * 3629).
 */
#include "base/utf8.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

static void test_valid_texts(void **state)
{
	static const char *const texts[] = {
		"",
		"a name",
		"\x7f",
		"\xc2\x80",
		"\xdf\xbf",
		"\xe0\xa0\x80",
		"\xed\x9f\xbf",
		"\xee\x80\x80",
		"\xef\xbf\xbf",
		"\xf0\x90\x80\x80",
		"\xf4\x8f\xbf\xbf",
		"caf\xc3\xa9 \xe2\x82\xac",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
		assert_int_equal(srdma_utf8_check(texts[i], strlen(texts[i])),
				 1);
}

static void test_invalid_texts(void **state)
{
	static const char *const texts[] = {
		"\x80",
		"a\xbf",
		"\xc0\x80",	    /* overlong */
		"\xc1\xbf",	    /* overlong */
		"\xc3\x28",	    /* no continuation */
		"\xe0\x9f\xbf",	    /* overlong */
		"\xe2\x82\x28",	    /* no continuation */
		"\xed\xa0\x80",	    /* surrogate */
		"\xf0\x8f\xbf\xbf", /* overlong */
		"\xf4\x90\x80\x80", /* above U+10FFFF */
		"\xf5\x80\x80\x80",
		"\xff",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
		assert_int_equal(srdma_utf8_check(texts[i], strlen(texts[i])),
				 0);
	assert_int_equal(srdma_utf8_check("a\0b", 3), 0);
}

/*
 * A sequence that continues behind the text is invalid. The page behind the
 * text cannot be read.
 */
static void test_truncated_sequences(void **state)
{
	static const char *const texts[] = { "\xc3\xa9", "\xe2\x82\xac",
					     "\xf0\x9f\x98\x80" };
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *end, *at = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	(void)state;
	assert_ptr_not_equal(at, MAP_FAILED);
	end = at + page;
	assert_int_equal(mprotect(end, page, PROT_NONE), 0);
	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
		for (size_t len = 1; len < strlen(texts[i]); len++) {
			memcpy(end - len, texts[i], len);
			assert_int_equal(srdma_utf8_check(end - len, len), 0);
		}
	munmap(at, 2 * page);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_valid_texts),
		cmocka_unit_test(test_invalid_texts),
		cmocka_unit_test(test_truncated_sequences),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
