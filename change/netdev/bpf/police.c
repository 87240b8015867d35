// SPDX-License-Identifier: Apache-2.0
// Stands where frames of a lane enter the host, and drops what is above the lane's rate, which the hook's qdisc counts.
// Other programs at the hook see the rest.

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "police.h"

SEC("tc")
int police(struct __sk_buff *skb) {
	return within_rate(skb) ? TC_ACT_UNSPEC : TC_ACT_SHOT;
}

// The helpers used need no GPL-compatible program.
char _license[] SEC("license") = "Apache-2.0";
