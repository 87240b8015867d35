// SPDX-License-Identifier: Apache-2.0
// Hands each frame that enters the host end of a veth pair straight to the inside of the other
// namespace, without a second softirq and without a bridge (bpf_redirect_peer, Linux 5.10).

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

volatile const __u32 port;         // the host end of the other veth pair
volatile const __u8 mac[ETH_ALEN]; // of the device at its inside

// linux/if_packet.h, which the kernel's BPF helpers speak of
#define PACKET_HOST 0
#define PACKET_OTHERHOST 3

static __always_inline int is_for_peer(const struct ethhdr *eth) {
	for (int i = 0; i < ETH_ALEN; i++)
		if (eth->h_dest[i] != mac[i])
			return 0;
	return 1;
}

SEC("tc")
int express(struct __sk_buff *skb) {
	if (skb->vlan_present)
		return TC_ACT_SHOT;
	if (skb->protocol != bpf_htons(ETH_P_IP) && skb->protocol != bpf_htons(ETH_P_IPV6) &&
	    skb->protocol != bpf_htons(ETH_P_ARP))
		return TC_ACT_SHOT;
	void *data = (void *)(long)skb->data;
	if (data + sizeof(struct ethhdr) > (void *)(long)skb->data_end)
		return TC_ACT_SHOT;
	// The kernel marked the frame as somebody else's, since it is not for the host's end of the
	// pair; the stack inside the namespace would drop it. Broadcast and multicast keep their mark.
	if (skb->pkt_type == PACKET_OTHERHOST && is_for_peer(data))
		bpf_skb_change_type(skb, PACKET_HOST);
	return bpf_redirect_peer(port, 0);
}

// The helpers used need no GPL-compatible program.
char _license[] SEC("license") = "Apache-2.0";
