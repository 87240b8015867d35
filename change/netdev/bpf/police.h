/* SPDX-License-Identifier: Apache-2.0 */
// Holds the sender of what enters a device to a rate, by a token bucket. It needs the helpers' header, those of IP
// (linux/if_ether.h, in.h, ip.h, ipv6.h, pkt_cls.h, linux/bpf.h) and nothing of who includes it.

volatile const __u64 rate;	// bytes a second; 0: any
volatile const __u64 burst; // nanoseconds of the rate that may come at once

// When the bucket would have been empty: what came since is in it. All CPUs share it.
struct bucket {
	struct bpf_spin_lock lock;
	__u64 empty; // as bpf_ktime_get_ns
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct bucket);
} buckets SEC(".maps");

// The headers that each frame of a joined one has on a wire. Where they are not known, it is all that can be headers.
static __always_inline __u32 headers(struct __sk_buff *skb) {
	__u32 most = skb->data_end - skb->data, size;
	struct iphdr v4;
	struct ipv6hdr v6;
	__u8 protocol, words;
	if (skb->protocol == bpf_htons(ETH_P_IP) && !bpf_skb_load_bytes(skb, ETH_HLEN, &v4, sizeof(v4))) {
		protocol = v4.protocol;
		size = ETH_HLEN + 4 * v4.ihl;
	} else if (skb->protocol == bpf_htons(ETH_P_IPV6) && !bpf_skb_load_bytes(skb, ETH_HLEN, &v6, sizeof(v6))) {
		protocol = v6.nexthdr;
		size = ETH_HLEN + sizeof(v6);
	} else {
		return most;
	}
	if (protocol == IPPROTO_UDP)
		return size + 8;
	if (protocol != IPPROTO_TCP || bpf_skb_load_bytes(skb, size + 12, &words, 1)) // RFC 9293, data offset
		return most;
	return size + 4 * (words >> 4);
}

// The bytes that a frame is on a wire, which cuts a joined one: no more than the product below has room for.
static __always_inline __u64 wire_length(struct __sk_buff *skb) {
	__u64 length = skb->len, size = skb->gso_size, each, more;
	if (!size)
		return length;
	each = headers(skb);
	more = length > each ? (length - each - 1) / size : length / size;
	length += more * each;
	return length < 1 << 30 ? length : 1 << 30;
}

static __always_inline int within_rate(struct __sk_buff *skb) {
	__u32 one = 0;
	struct bucket *b;
	__u64 cost, now, empty;
	int within;
	if (!rate || !(b = bpf_map_lookup_elem(&buckets, &one)))
		return 1;
	cost = wire_length(skb) * 1000000000 / rate;
	now = bpf_ktime_get_ns();
	bpf_spin_lock(&b->lock);
	empty = b->empty + burst < now ? now - burst : b->empty;
	within = empty + cost <= now;
	if (within)
		b->empty = empty + cost;
	bpf_spin_unlock(&b->lock);
	return within;
}
