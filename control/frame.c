#include "control/frame.h"

#include <errno.h>
#include <string.h>

#include "base/bytes.h"

enum { LENGTH = 4, STREAM_AND_TYPE = FRAME_HEAD - LENGTH };

int frame_parse(struct frame *f, const uint8_t *in, size_t have)
{
	uint32_t len;

	if (have < LENGTH)
		return 0;
	len = srdma_load32(in);
	if (len > FRAME_MAX - LENGTH)
		return -EMSGSIZE;
	if (len < STREAM_AND_TYPE)
		return -EPROTO;
	if (have < LENGTH + len)
		return 0;
	f->stream = srdma_load32(in + LENGTH);
	f->type = in[FRAME_HEAD - 1];
	f->body = in + FRAME_HEAD;
	f->len = len - STREAM_AND_TYPE;
	return (int)(LENGTH + len);
}

int frame_put(struct queue *q, uint32_t stream, enum frame_type type,
	      const uint8_t *body, size_t len)
{
	uint8_t *out = queue_add(q, FRAME_HEAD + len);

	if (!out)
		return -ENOMEM;
	srdma_store32(out, (uint32_t)(len + STREAM_AND_TYPE));
	srdma_store32(out + LENGTH, stream);
	out[FRAME_HEAD - 1] = (uint8_t)type;
	if (len)
		memcpy(out + FRAME_HEAD, body, len);
	return 0;
}

int frame_put_map(struct queue *q, uint32_t stream, enum frame_type type,
		  struct srdma_message *map)
{
	int rc = srdma_message_finish(map);

	if (!rc)
		rc = frame_put(q, stream, type,
			       map->data + SRDMA_MESSAGE_LENGTH,
			       map->len - SRDMA_MESSAGE_LENGTH);
	srdma_message_free(map);
	return rc;
}
