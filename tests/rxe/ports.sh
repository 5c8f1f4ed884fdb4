# Configures network ports, for ports.py and for the firmware of the stand's NICs. Each line of the
# standard input is a port: NAME MAC DEVICE ADDRESS... The port with that MAC gets that name and
# those addresses, in that order, and unless DEVICE is "-" an rxe device of that name.
set -e
ip link set lo up
while read -r name mac device addresses; do
	for port in /sys/class/net/*; do
		[ "$(cat "$port/address")" != "$mac" ] || ip link set "${port##*/}" name "$name"
	done
	for address in $addresses; do
		ip addr add "$address" dev "$name"
	done
	ip link set "$name" up
	[ "$device" = - ] || rdma link add "$device" type rxe netdev "$name"
done
