// SPDX-License-Identifier: (MIT OR GPL-2.0-only)
// Adds up, in the kernel, who ran on which CPU, how often and for how long. Nothing is sent out
// while a window lasts: the sums are read afterwards.
//
// A CPU counts from the moment open_cpu runs on it until close_cpu does, so that the task which is
// on it then is known and counted too, even if it stays there all the window. The loader runs both
// on every CPU (BPF_PROG_TEST_RUN of a raw tracepoint with a CPU); they are attached nowhere.

#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

// What is read of the kernel's struct; the loader finds the offsets of the running kernel.
struct task_struct {
	int pid;
	int tgid;
	unsigned int flags;
	__u64 start_boottime;
	struct task_struct *group_leader;
	struct task_struct *real_parent;
	char comm[16];
} __attribute__((preserve_access_index));

// A task on a CPU. Thread ids are used again, start times are not.
struct key {
	__u32 cpu;
	__u32 tid;
	__u64 start;
};

struct stay {
	__u64 runs;
	__u64 voluntary;   // of the runs, those that the task ended by itself
	__u64 involuntary; // and those that another task ended; the end of the window ends a run too
	__u64 ns;
	__u64 worst; // the longest single run
	__u64 process_start;
	__u32 tgid;
	__u32 parent; // tgid of the parent when the task first ran: short-lived children keep their line
	__u32 flags;
	__u32 unused;
	__u64 comm[2];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct key);
	__type(value, struct stay);
} stays SEC(".maps");

struct cpu {
	__u64 since; // when the task that is on the CPU came, or counting began; 0: not counting
	__u64 switches;
	__u64 dropped; // runs that found no room in stays
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cpu);
} cpus SEC(".maps");

static __always_inline struct cpu *this_cpu(void) {
	__u32 zero = 0;
	return bpf_map_lookup_elem(&cpus, &zero);
}

enum end { VOLUNTARY, INVOLUNTARY, WINDOW };

// leave counts the run that a task ends now. The task may have renamed itself or become another
// program since its last run, so its name is kept up to date.
static __always_inline void leave(struct cpu *c, struct task_struct *t, __u64 now, enum end end) {
	struct key key = {.cpu = bpf_get_smp_processor_id(), .tid = t->pid, .start = t->start_boottime};
	__u64 ns = now - c->since;
	__u64 *comm = (__u64 *)t->comm;
	struct stay *s = bpf_map_lookup_elem(&stays, &key);
	if (s) {
		s->runs++;
		s->voluntary += end == VOLUNTARY;
		s->involuntary += end == INVOLUNTARY;
		s->ns += ns;
		if (ns > s->worst)
			s->worst = ns;
		s->comm[0] = comm[0];
		s->comm[1] = comm[1];
		return;
	}
	struct stay fresh = {
		.runs = 1, .voluntary = end == VOLUNTARY, .involuntary = end == INVOLUNTARY, .ns = ns, .worst = ns,
		.tgid = t->tgid, .flags = t->flags, .process_start = t->group_leader->start_boottime,
		.parent = t->real_parent->tgid,
		.comm = {comm[0], comm[1]},
	};
	if (bpf_map_update_elem(&stays, &key, &fresh, BPF_NOEXIST))
		c->dropped++;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, _Bool preempt, struct task_struct *prev, struct task_struct *next, unsigned int state) {
	struct cpu *c = this_cpu();
	if (!c || !c->since)
		return 0;
	__u64 now = bpf_ktime_get_ns();
	if (prev->pid) // else the idle task
		leave(c, prev, now, !preempt && state ? VOLUNTARY : INVOLUNTARY);
	c->since = now;
	c->switches++;
	return 0;
}

SEC("raw_tp")
int open_cpu(void *unused) {
	struct cpu *c = this_cpu();
	if (c)
		c->since = bpf_ktime_get_ns();
	return 0;
}

SEC("raw_tp")
int close_cpu(void *unused) {
	struct cpu *c = this_cpu();
	struct task_struct *t = bpf_get_current_task_btf();
	if (!c || !c->since)
		return 0;
	if (t->pid)
		leave(c, t, bpf_ktime_get_ns(), WINDOW);
	c->since = 0;
	return 0;
}

// The verifier lets only GPL-compatible programs read the kernel's structs.
char _license[] SEC("license") = "Dual MIT/GPL";
