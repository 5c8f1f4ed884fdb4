-- Dissector for Wireshark and tshark: the parts that srdma adds behind the
-- InfiniBand headers of a RoCEv2 datagram (docs/protocol.md 2 and 11a): STH, ack
-- body, payload. Wireshark's own InfiniBand dissector shows BTH, RETH, AETH.
--
--     tshark -X lua_script:docs/tools/srdma.lua -r capture.pcap -Y srdma
--     tshark ... -T fields -e srdma.request_id -e srdma.offset
--     tshark ... -Y 'srdma.icrc.status == "Bad"'
--
-- Wireshark loads it from the folder of personal Lua plugins (Help, About,
-- Folders). A UDP port other than 4791 needs -d udp.port==PORT,infiniband. Packets
-- of level none look like plain RoCE: -o srdma.unprotected:TRUE decodes them.

local srdma = Proto("srdma", "Secure RDMA")

srdma.prefs.icrc = Pref.bool("Check the ICRC", true,
	"Compute the invariant CRC of each datagram and compare")
srdma.prefs.unprotected = Pref.bool("Show level none too", false,
	"Take RoCE packets without a tag size code for srdma's")

-- Tables ----------------------------------------------------------------------

local TAG_LENGTH = { [0] = 0, 12, 16, 20, 28, 32, 48, 64 }

local BTH, RETH, ATOMIC, AETH, ATOMIC_ACK, IMM, IETH = 12, 16, 28, 4, 8, 4, 4
local ACKNOWLEDGE = 0x11

-- Bytes of the extension headers by opcode (protocol.md 2.2).
local EXTENSION = {
	[0x00] = 0, [0x01] = 0, [0x02] = 0, [0x03] = IMM, [0x04] = 0, [0x05] = IMM,
	[0x06] = RETH, [0x07] = 0, [0x08] = 0, [0x09] = IMM, [0x0a] = RETH,
	[0x0b] = RETH + IMM, [0x0c] = RETH, [0x0d] = AETH, [0x0e] = 0,
	[0x0f] = AETH, [0x10] = AETH, [ACKNOWLEDGE] = AETH,
	[0x12] = AETH + ATOMIC_ACK, [0x13] = ATOMIC, [0x14] = ATOMIC,
	[0x16] = IETH, [0x17] = IETH,
}

local KINDS = { [1] = "OPEN", [2] = "PING", [3] = "CLOSE", [4] = "ACK",
	[5] = "NAK", [6] = "RNR" }
local STH, PROOF, ACK_BODY, GAP, ICRC = 8, 24, 28, 12, 4

-- Fields ----------------------------------------------------------------------

local f = {
	tag_length = ProtoField.uint8("srdma.tag_length", "Tag length",
		base.DEC),
	epoch = ProtoField.uint8("srdma.epoch", "Key epoch, low 2 bits", base.DEC),
	sth = ProtoField.bytes("srdma.sth", "Secure Transport Header"),
	request_id = ProtoField.uint24("srdma.request_id",
		"Request id, low 24 bits", base.DEC),
	flags = ProtoField.uint8("srdma.flags", "Flags", base.HEX),
	proven = ProtoField.bool("srdma.flags.proof", "Memory proof present", 8,
		nil, 0x80),
	holder = ProtoField.bool("srdma.flags.holder", "Bound to its holder", 8,
		nil, 0x40),
	ack_now = ProtoField.bool("srdma.flags.ack_now", "Acknowledge at once", 8,
		nil, 0x20),
	bare = ProtoField.bool("srdma.flags.bare", "Takes bare datagrams", 8,
		nil, 0x10),
	offset = ProtoField.uint32("srdma.offset", "Offset in the message",
		base.DEC),
	depth = ProtoField.uint8("srdma.depth", "Node depth", base.DEC),
	expiry = ProtoField.absolute_time("srdma.expiry", "Expiry", base.UTC),
	proof = ProtoField.bytes("srdma.proof", "Memory proof"),
	tag = ProtoField.bytes("srdma.tag", "Tag"),
	ack = ProtoField.bytes("srdma.ack", "Ack body"),
	ack_kind = ProtoField.uint8("srdma.ack.kind", "Kind", base.DEC, KINDS),
	ack_reason = ProtoField.uint8("srdma.ack.reason", "Reason", base.DEC),
	ack_gaps = ProtoField.uint8("srdma.ack.gaps", "Number of gaps", base.DEC),
	ack_skips = ProtoField.uint8("srdma.ack.skips", "Earlier gaps not told", base.DEC),
	ack_position = ProtoField.uint32("srdma.ack.position",
		"Position: request id, low 32 bits", base.DEC),
	ack_offset = ProtoField.uint32("srdma.ack.offset", "Position: offset",
		base.DEC),
	ack_highest = ProtoField.uint32("srdma.ack.highest_pn",
		"Highest verified packet number, low 32 bits", base.HEX),
	ack_recv = ProtoField.uint32("srdma.ack.recv_credit", "RECV credit",
		base.DEC),
	ack_request = ProtoField.uint32("srdma.ack.request_credit",
		"Request credit", base.DEC),
	ack_path = ProtoField.uint32("srdma.ack.path",
		"Path: limited (bit 31), token", base.HEX),
	gap_id = ProtoField.uint32("srdma.ack.gap.request_id",
		"Missing: request id", base.DEC),
	gap_offset = ProtoField.uint32("srdma.ack.gap.offset",
		"Missing: from offset", base.DEC),
	gap_length = ProtoField.uint32("srdma.ack.gap.length", "Missing: bytes",
		base.DEC),
	payload = ProtoField.bytes("srdma.payload", "Payload"),
	pad = ProtoField.bytes("srdma.pad", "Pad"),
	icrc = ProtoField.bytes("srdma.icrc", "Invariant CRC"),
	icrc_status = ProtoField.string("srdma.icrc.status", "ICRC status"),
}
srdma.fields = f

local e_malformed = ProtoExpert.new("srdma.malformed", "No packet of srdma-1",
	expert.group.MALFORMED, expert.severity.ERROR)
local e_icrc = ProtoExpert.new("srdma.icrc.bad", "The ICRC is wrong",
	expert.group.CHECKSUM, expert.severity.ERROR)
srdma.experts = { e_malformed, e_icrc }

local bth_field = Field.new("infiniband.bth")
local udp_field = Field.new("udp")
local udp_length_field = Field.new("udp.length")
local ip_field = Field.new("ip")
local ipv6_field = Field.new("ipv6")

-- If a datagram is inside another one, the innermost.
local function last(field)
	local all = { field() }
	return all[#all]
end

-- ICRC ------------------------------------------------------------------------

local bits = bit or bit32
local crc_table

local function make_table()
	local t = {}
	for i = 0, 255 do
		local c = i
		for _ = 1, 8 do
			local low = bits.band(c, 1)
			c = bits.rshift(c, 1)
			if low == 1 then
				c = bits.bxor(c, 0xedb88320)
			end
		end
		t[i] = c
	end
	return t
end

local function crc32(text)
	local c = 0xffffffff
	crc_table = crc_table or make_table()
	for i = 1, #text do
		local at = bits.band(bits.bxor(c, text:byte(i)), 0xff)
		c = bits.bxor(bits.rshift(c, 8), crc_table[at])
	end
	return bits.bnot(c)
end

-- text with the bytes at these offsets (from 0) set to ones.
local function masked(text, first, count)
	return text:sub(1, first) .. ("\255"):rep(count) .. text:sub(first + count + 1)
end

local function masked_ip(tvb)
	local v4, v6 = last(ip_field), last(ipv6_field)
	if v4 and (not v6 or v4.offset > v6.offset) then
		local text = tvb:raw(v4.offset, 20)
		return masked(masked(masked(text, 1, 1), 8, 1), 10, 2)
	end
	local text = tvb:raw(v6.offset, 40)
	local first = string.char(bits.bor(text:byte(1), 0x0f))
	return first .. masked(text:sub(2), 0, 3):sub(1, 6) .. "\255" .. text:sub(9)
end

local function icrc_of(tvb, bth, stop)
	local udp = masked(tvb:raw(last(udp_field).offset, 8), 6, 2)
	local packet = masked(tvb:raw(bth, stop - bth), 4, 1)
	local c = crc32(("\255"):rep(8) .. masked_ip(tvb) .. udp .. packet)
	local out = {}
	for i = 0, 3 do
		out[i + 1] = string.char(bits.band(bits.rshift(c, 8 * i), 0xff))
	end
	return table.concat(out)
end

local function show_icrc(tree, tvb, bth, stop)
	local range = tvb(stop, ICRC)
	tree:add(f.icrc, range)
	if not srdma.prefs.icrc then
		tree:add(f.icrc_status, range, "Unverified"):set_generated()
		return
	end
	local good = icrc_of(tvb, bth, stop) == tvb:raw(stop, ICRC)
	local bare = last(ip_field) and tvb:raw(stop, ICRC) == ("\0"):rep(ICRC)
	local status = good and "Good" or bare and "None" or "Bad"
	tree:add(f.icrc_status, range, status):set_generated()
	if status == "Bad" then
		tree:add_proto_expert_info(e_icrc)
	end
end

-- The packet ------------------------------------------------------------------

local function show_gaps(tree, tvb, at, count)
	for i = 0, count - 1 do
		local gap = tvb(at + GAP * i, GAP)
		tree:add(f.gap_id, gap(0, 4))
		tree:add(f.gap_offset, gap(4, 4))
		tree:add(f.gap_length, gap(8, 4))
	end
end

local function show_ack(tree, tvb, at, size)
	local body = tvb(at, size)
	local ack = tree:add(f.ack, body)
	ack:add(f.ack_kind, body(0, 1))
	ack:add(f.ack_reason, body(1, 1))
	ack:add(f.ack_gaps, body(2, 1))
	ack:add(f.ack_skips, body(3, 1))
	ack:add(f.ack_position, body(4, 4))
	ack:add(f.ack_offset, body(8, 4))
	ack:add(f.ack_highest, body(12, 4))
	ack:add(f.ack_recv, body(16, 4))
	ack:add(f.ack_request, body(20, 4))
	ack:add(f.ack_path, body(24, 4))
	show_gaps(ack, tvb, at + ACK_BODY, body(2, 1):uint())
end

local function show_sth(tree, tvb, at, size)
	local range = tvb(at, size)
	local sth = tree:add(f.sth, range)
	sth:add(f.request_id, range(0, 3))
	local flags = sth:add(f.flags, range(3, 1))
	flags:add(f.proven, range(3, 1))
	flags:add(f.holder, range(3, 1))
	flags:add(f.ack_now, range(3, 1))
	flags:add(f.bare, range(3, 1))
	sth:add(f.offset, range(4, 4))
	if size > STH then
		sth:add(f.depth, range(8, 1))
		sth:add(f.expiry, range(12, 4))
		sth:add(f.proof, range(16, 16))
	end
end

-- Offsets of all parts, or nil if the datagram is too short.
local function layout(tvb, bth, stop)
	local opcode = tvb(bth, 1):uint()
	local code = bits.band(bits.rshift(tvb(bth + 8, 1):uint(), 4), 7)
	local l = { opcode = opcode, tag_length = TAG_LENGTH[code] }
	l.sth = bth + BTH + EXTENSION[opcode]
	if l.sth + STH > stop then
		return nil
	end
	l.sth_length = STH
	if tvb(l.sth + 3, 1):uint() >= 0x80 then
		l.sth_length = STH + PROOF
	end
	l.tag = l.sth + l.sth_length
	l.payload = l.tag + l.tag_length
	l.ack_length = 0
	if opcode == ACKNOWLEDGE then
		if l.payload + ACK_BODY > stop then
			return nil
		end
		l.ack = l.payload
		l.ack_length = ACK_BODY + GAP * tvb(l.ack + 2, 1):uint()
		l.payload = l.ack + l.ack_length
	end
	l.pad_length = bits.band(bits.rshift(tvb(bth + 1, 1):uint(), 4), 3)
	l.pad = stop - l.pad_length
	return l.payload <= l.pad and l or nil
end

local function describe(pinfo, tvb, l)
	local text = (" id=%d"):format(tvb(l.sth, 3):uint())
	if l.ack then
		local kind = tvb(l.ack, 1):uint()
		text = (" %s"):format(KINDS[kind] or kind) .. text
	end
	text = text .. (" off=%d"):format(tvb(l.sth + 4, 4):uint())
	if l.pad > l.payload then
		text = text .. (" len=%d"):format(l.pad - l.payload)
	end
	pinfo.cols.protocol:set("SRDMA")
	pinfo.cols.info:append(text)
end

-- bth to stop: the packet; behind it the ICRC.
local function show(tvb, pinfo, root, bth, stop)
	local tree = root:add(srdma, tvb(bth, stop + ICRC - bth))
	local l = layout(tvb, bth, stop)
	if not l then
		tree:add_proto_expert_info(e_malformed)
		return
	end
	local bth8 = tvb(bth + 8, 1)
	tree:add(f.tag_length, bth8, l.tag_length)
	tree:add(f.epoch, bth8, bits.band(bits.rshift(bth8:uint(), 2), 3))
	show_sth(tree, tvb, l.sth, l.sth_length)
	if l.tag_length > 0 then
		tree:add(f.tag, tvb(l.tag, l.tag_length))
	end
	if l.ack then
		show_ack(tree, tvb, l.ack, l.ack_length)
	end
	if l.pad > l.payload then
		tree:add(f.payload, tvb(l.payload, l.pad - l.payload))
	end
	if l.pad_length > 0 then
		tree:add(f.pad, tvb(l.pad, l.pad_length))
	end
	show_icrc(tree, tvb, bth, stop)
	describe(pinfo, tvb, l)
end

function srdma.dissector(tvb, pinfo, root)
	local bth, udp = last(bth_field), last(udp_length_field)
	if not bth or not udp or bth.offset + BTH > tvb:len() then
		return
	end
	local opcode = tvb(bth.offset, 1):uint()
	local coded = bits.band(tvb(bth.offset + 8, 1):uint(), 0x70) ~= 0
	if not EXTENSION[opcode] or not (coded or srdma.prefs.unprotected) then
		return
	end
	local stop = bth.offset + udp.value - 8 - ICRC
	if stop + ICRC <= tvb:len() and stop > bth.offset then
		show(tvb, pinfo, root, bth.offset, stop)
	end
end

register_postdissector(srdma)
