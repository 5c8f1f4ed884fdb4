/* The private structures of a relay and its QPs, for tests that check them. */
#ifndef SRDMA_TESTS_INSIDE_H
#define SRDMA_TESTS_INSIDE_H

#include "path/path_impl.h"
#include "qp/qp_impl.h"
#include "relay/relay_impl.h"
#include "requester/requester_impl.h"
#include "responder/responder_impl.h"

#endif
