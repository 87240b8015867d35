// SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0)
// Adds up, in the kernel, who ran on which CPU for how long. Nothing is sent out while a
// measurement runs: the sums are read afterwards.

#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#define COMM 16

// What is read of the kernel's struct; the loader finds the offsets of the running kernel.
struct task_struct {
	int pid;
	int tgid;
	unsigned int flags;
	char comm[COMM];
} __attribute__((preserve_access_index));

struct key {
	__u32 cpu;
	__u32 tid;
};

struct stay {
	__u64 runs;
	__u64 ns;
	__u64 worst;
	__u32 tgid;
	__u32 flags;
	char comm[COMM];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct key);
	__type(value, struct stay);
} stays SEC(".maps");

// When the task that is now on the CPU came, 0 before the first switch.
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} since SEC(".maps");

__u64 dropped; // stays that found no room

const volatile __u64 begin; // of the window: the task that runs then came before

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, _Bool preempt, struct task_struct *prev, struct task_struct *next) {
	__u32 zero = 0;
	__u64 now = bpf_ktime_get_ns();
	__u64 *came = bpf_map_lookup_elem(&since, &zero);
	if (!came)
		return 0;
	__u64 from = *came ? *came : begin;
	*came = now;
	if (!prev->pid) // the idle task
		return 0;
	struct key key = {.cpu = bpf_get_smp_processor_id(), .tid = prev->pid};
	__u64 ns = now - from;
	struct stay *s = bpf_map_lookup_elem(&stays, &key);
	if (s) {
		s->runs++;
		s->ns += ns;
		if (ns > s->worst)
			s->worst = ns;
		return 0;
	}
	struct stay fresh = {.runs = 1, .ns = ns, .worst = ns, .tgid = prev->tgid, .flags = prev->flags};
	bpf_probe_read_kernel_str(fresh.comm, COMM, prev->comm);
	if (bpf_map_update_elem(&stays, &key, &fresh, BPF_NOEXIST))
		__sync_fetch_and_add(&dropped, 1);
	return 0;
}

// bpf_probe_read_kernel_str is for GPL-compatible programs.
char _license[] SEC("license") = "GPL";
