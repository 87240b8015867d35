// SPDX-License-Identifier: Apache-2.0
// Stands where frames enter the host's ends of lanes' devices and their uplink. A frame for a lane goes straight to
// the inside of its namespace, without a second softirq and without the bridge (bpf_redirect_peer, Linux 5.10); one
// of a lane for anybody else leaves by the uplink. What is for several (ARP, neighbour discovery) takes the bridge,
// and so does what came by the uplink for nobody here. A lane sends in its own name only, and no more than its
// rate: what it may not send is dropped, and the hook's qdisc counts it.

#include <stddef.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "../../../change/netdev/bpf/police.h"

struct mac {
	__u8 bytes[ETH_ALEN];
};

struct port {
	__u32 device;  // its number
	__u32 longest; // a frame of its MTU, in bytes
};

// The lanes of an uplink, for the programs of all its ports: the address of the device inside, and the host's end. The
// zero address stands for everybody else, where there is an uplink. A bridge has no more ports (BR_MAX_PORTS).
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1024);
	__type(key, struct mac);
	__type(value, struct port);
} table SEC(".maps");

struct source {
	__u32 length; // in bits, with those of the family
	__u32 family; // an Ethernet protocol
	__u8 address[16];
};

// The IP addresses that the lane whose frames enter here may send from, as prefixes.
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct source);
	__type(value, __u8);
} sources SEC(".maps");

// The address of the lane whose frames enter here, and without a tag; zero at the uplink, where everybody's do.
volatile const struct mac from;
volatile const __u8 guarded; // the sources say from where the lane may send
volatile const __u8 router;	 // the lane may say that it is one

// linux/if_packet.h, which the kernel's BPF helpers speak of
#define PACKET_HOST 0
#define PACKET_OTHERHOST 3

static __always_inline int same(const struct mac *a, const volatile struct mac *b) {
	for (int i = 0; i < ETH_ALEN; i++)
		if (a->bytes[i] != b->bytes[i])
			return 0;
	return 1;
}

static __always_inline int is_zero(const volatile struct mac *m) {
	const struct mac zero = {};
	return same(&zero, m);
}

static __always_inline int own(__u32 family, const void *address, __u32 size) {
	struct source s = {.length = 8 * (sizeof(s.family) + size), .family = family};
	__builtin_memcpy(s.address, address, size);
	return bpf_map_lookup_elem(&sources, &s) != NULL;
}

static __always_inline int unspecified(const __u8 *address, int size) {
	__u8 any = 0;
	for (int i = 0; i < size; i++)
		any |= address[i];
	return !any;
}

// The lane says who has an address: it does, or asks whether anybody else has (RFC 5227), then from no address.
static __always_inline int arp(struct __sk_buff *skb) {
	struct {
		__u8 head[8];
		struct mac sender;
		__u8 source[4];
		struct mac receiver;
		__u8 target[4];
	} __attribute__((packed)) m;
	if (bpf_skb_load_bytes(skb, ETH_HLEN, &m, sizeof(m)) || !same(&m.sender, &from))
		return 0;
	return own(ETH_P_IP, unspecified(m.source, 4) ? m.target : m.source, 4);
}

// ICMPv6 of a sender whose address is its own, or unspecified: as that of a lane that asks whether anybody else has
// its address, or which groups it wants to hear.
static __always_inline int icmp(struct __sk_buff *skb, __u32 offset, int mine) {
	struct {
		__u8 type, code, rest[6], target[16];
	} m;
	if (bpf_skb_load_bytes(skb, offset, &m, offsetof(typeof(m), target)))
		return 0;
	switch (m.type) {
	case 131: // multicast listener reports (RFC 2710, RFC 3810)
	case 132:
	case 143:
		return 1;
	case 134: // router advertisement
		return mine && router;
	case 135: // neighbour solicitation
		if (mine)
			return 1;
		break;
	case 136: // neighbour advertisement
		if (mine)
			break;
	default:
		return mine;
	}
	return !bpf_skb_load_bytes(skb, offset, &m, sizeof(m)) && own(ETH_P_IPV6, m.target, sizeof(m.target));
}

static __always_inline int ipv6(struct __sk_buff *skb) {
	struct ipv6hdr h;
	__u32 offset = ETH_HLEN + sizeof(h);
	if (bpf_skb_load_bytes(skb, ETH_HLEN, &h, sizeof(h)))
		return 0;
	int mine = own(ETH_P_IPV6, &h.saddr, sizeof(h.saddr));
	if (!mine && !unspecified(h.saddr.s6_addr, sizeof(h.saddr)))
		return 0;
	__u8 next = h.nexthdr;
	for (int i = 0; i < 4; i++) {
		struct {
			__u8 next, length;
		} extension;
		if (next == IPPROTO_ICMPV6)
			return icmp(skb, offset, mine);
		if (next != IPPROTO_HOPOPTS && next != IPPROTO_ROUTING && next != IPPROTO_DSTOPTS)
			return mine; // neighbour discovery in fragments is ignored (RFC 6980)
		if (bpf_skb_load_bytes(skb, offset, &extension, sizeof(extension)))
			return 0;
		next = extension.next;
		offset += 8 * (extension.length + 1);
	}
	return 0; // nobody needs so many
}

static __always_inline int allowed(struct __sk_buff *skb) {
	struct iphdr h;
	switch (skb->protocol) {
	case bpf_htons(ETH_P_IP):
		return !bpf_skb_load_bytes(skb, ETH_HLEN, &h, sizeof(h)) && own(ETH_P_IP, &h.saddr, sizeof(h.saddr));
	case bpf_htons(ETH_P_ARP):
		return arp(skb);
	case bpf_htons(ETH_P_IPV6):
		return ipv6(skb);
	}
	return 0; // whose frame it is cannot be seen
}

SEC("tc")
int express(struct __sk_buff *skb) {
	void *data = (void *)(long)skb->data;
	if (data + sizeof(struct ethhdr) > (void *)(long)skb->data_end)
		return TC_ACT_OK;
	struct mac to, source;
	__builtin_memcpy(&to, data, ETH_ALEN); // the destination comes first
	__builtin_memcpy(&source, data + ETH_ALEN, ETH_ALEN);
	int lane = !is_zero(&from);
	if (lane && (skb->vlan_present || !same(&source, &from) || (guarded && !allowed(skb))))
		return TC_ACT_SHOT;
	if (!within_rate(skb))
		return TC_ACT_SHOT;
	if (to.bytes[0] & 1) // broadcast or multicast
		return TC_ACT_OK;
	struct port *port = is_zero(&to) ? NULL : bpf_map_lookup_elem(&table, &to); // nobody has that address
	if (!port) {
		if (!lane) // else it would go back to where it came from
			return TC_ACT_OK;
		struct mac others = {};
		port = bpf_map_lookup_elem(&table, &others);
		return port ? bpf_redirect(port->device, 0) : TC_ACT_OK;
	}
	// A lane's own was dropped above: it is another network's. Without a number it has a priority only (802.1Q).
	if (skb->vlan_present && skb->vlan_tci & 0xfff)
		return TC_ACT_SHOT;
	// The kernel does not look at the length of what it hands to a peer, as a bridge does (is_skb_forwardable). A
	// joined frame is longer by design.
	if (skb->len > port->longest && !skb->gso_size)
		return TC_ACT_SHOT;
	// The kernel marked the frame as somebody else's, since it is not for the host; the stack inside the
	// namespace would drop it.
	if (skb->pkt_type == PACKET_OTHERHOST)
		bpf_skb_change_type(skb, PACKET_HOST);
	return bpf_redirect_peer(port->device, 0);
}

// The helpers used need no GPL-compatible program.
char _license[] SEC("license") = "Apache-2.0";
