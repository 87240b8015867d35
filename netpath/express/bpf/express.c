// SPDX-License-Identifier: Apache-2.0
// Stands where frames enter the host's ends of lanes' devices and their uplink. A frame for a lane goes straight to
// the inside of its namespace, without a second softirq and without the bridge (bpf_redirect_peer, Linux 5.10); one
// for anybody else leaves by the uplink. What is for several (ARP, neighbour discovery) takes the bridge.

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

struct mac {
	__u8 bytes[ETH_ALEN];
};

// The lanes of an uplink, for the programs of all its ports: the address of the device inside, and the host's end. The
// zero address stands for everybody else, where there is an uplink. A bridge has no more ports (BR_MAX_PORTS).
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1024);
	__type(key, struct mac);
	__type(value, __u32);
} table SEC(".maps");

// The address of the lane whose frames enter here, and without a tag; zero at the uplink, where everybody's do.
volatile const struct mac from;

// linux/if_packet.h, which the kernel's BPF helpers speak of
#define PACKET_HOST 0
#define PACKET_OTHERHOST 3

static __always_inline int same(const struct mac *a, const volatile struct mac *b) {
	for (int i = 0; i < ETH_ALEN; i++)
		if (a->bytes[i] != b->bytes[i])
			return 0;
	return 1;
}

static __always_inline int is_lane(const volatile struct mac *m) {
	const struct mac nobody = {};
	return !same(&nobody, m);
}

SEC("tc")
int express(struct __sk_buff *skb) {
	void *data = (void *)(long)skb->data;
	if (data + sizeof(struct ethhdr) > (void *)(long)skb->data_end)
		return TC_ACT_OK;
	struct mac to, source;
	__builtin_memcpy(&to, data, ETH_ALEN); // the destination comes first
	__builtin_memcpy(&source, data + ETH_ALEN, ETH_ALEN);
	if (is_lane(&from) && (skb->vlan_present || !same(&source, &from)))
		return TC_ACT_SHOT;
	if (to.bytes[0] & 1) // broadcast or multicast
		return TC_ACT_OK;
	__u32 *port = bpf_map_lookup_elem(&table, &to);
	if (!port) {
		struct mac others = {};
		port = bpf_map_lookup_elem(&table, &others);
		return port ? bpf_redirect(*port, 0) : TC_ACT_OK;
	}
	// The kernel marked the frame as somebody else's, since it is not for the host; the stack inside the
	// namespace would drop it.
	if (skb->pkt_type == PACKET_OTHERHOST)
		bpf_skb_change_type(skb, PACKET_HOST);
	return bpf_redirect_peer(*port, 0);
}

// The helpers used need no GPL-compatible program.
char _license[] SEC("license") = "Apache-2.0";
