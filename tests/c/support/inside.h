/* The relay's private structures, for tests that look inside it. */
#ifndef SRDMA_TESTS_INSIDE_H
#define SRDMA_TESTS_INSIDE_H

#include "path/path_impl.h"
#include "qp/qp_impl.h"
#include "relay/relay_impl.h"
#include "requester/requester_impl.h"
#include "responder/responder_impl.h"

#endif
