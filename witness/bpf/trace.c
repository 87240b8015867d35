// SPDX-License-Identifier: (MIT OR GPL-2.0-only)
// Adds up, in the kernel, what takes the time of the watched CPUs: by source how often, for how long,
// the longest, and a histogram. Nothing is sent out: user space reads the sums from another CPU.
// While recording is set, each intrusion of some length also leaves a note with its begin and end, which
// is read afterwards: no note wakes anybody.
//
// A time is a source's own: from its first to its last instruction that a tracepoint sees, less what
// interrupted it meanwhile. So the times of a CPU do not overlap, and neither a task nor a softirq is
// charged with the interrupts that hit it. What the processor and the kernel do before the first
// tracepoint and behind the last belongs to nobody here.

#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

// What is read of the kernel's structs; the loader finds the offsets of the running kernel.
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct kernfs_node {
	__u64 id;
};

struct cgroup;

struct cgroup_subsys_state {
	struct cgroup *cgroup;
	struct cgroup_subsys_state *parent;
};

struct cgroup {
	struct cgroup_subsys_state self;
	struct kernfs_node *kn;
};

struct css_set {
	struct cgroup_subsys_state *subsys[1];
	struct cgroup *dfl_cgrp;
};

struct task_struct {
	int pid;
	int tgid;
	unsigned int flags;
	__u64 start_boottime;
	struct css_set *cgroups;
	char comm[16];
};

struct irqaction {
	const char *name;
};

struct work_struct {
	void *func;
};

#pragma clang attribute pop

#define PF_KTHREAD 0x00200000 // include/linux/sched.h

enum kind { TASK, KERNEL_THREAD, INTERRUPT, SOFTIRQ, IPI, TICK };

struct key {
	__u32 cpu;
	__u32 kind;
	__u64 id;    // thread id, interrupt number, vector of a softirq or IPI
	__u64 start; // of a task: thread ids are used again, start times are not
	__u64 work;  // of a kworker: the function that it ran
};

// REST gathers, by CPU and kind, the sources that found no room. The loader puts it there.
#define REST (~0ULL)

// Histogram: units of 64 ns, eight buckets to each power of two; the last one has no end.
#define BUCKETS 192

struct source {
	__u64 count;
	__u64 ns;
	__u64 longest;
	__u64 cgroup;
	__u32 tgid;
	__u32 unused;
	char name[32]; // of a task or an interrupt
	char work[32]; // symbol of key.work
	__u32 buckets[BUCKETS];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1); // the loader knows how many CPUs there are
	__type(key, struct key);
	__type(value, struct source);
} sources SEC(".maps");

// A source is too large for the stack of a program: new ones are copied from here.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct source);
} blank SEC(".maps");

// The ids of the cgroups whose tasks are no intruders, nor those of the cgroups below.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u64);
	__type(value, __u8);
} own SEC(".maps");

// The loader gives it pages for a recording.
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} notes SEC(".maps");

// OWN is the kind of a run of an own task, whatever its length: where several CPUs are watched, it tells
// on which of them the lane's work was.
#define OWN 6

// An intrusion is noted if it lasted so long, in nanoseconds, with what interrupted it.
#define LONG 2000

struct note {
	__u32 cpu;
	__u32 kind;
	__u64 id;
	__u64 start;
	__u64 begin; // of bpf_ktime_get_ns, which is CLOCK_MONOTONIC
	__u64 end;
};

struct frame {
	__u64 since; // 0: nothing runs at this level
	__u64 inner; // what cpu.inner was then
	__u64 id;
};

struct cpu {
	__u64 watched;
	__u64 inner;  // time of all interrupts and softirqs so far
	__u64 missed; // what found no room, not even in REST
	__u64 tick;   // why the tick could not stop: TICK_DEP_MASK_* of include/linux/tick.h
	__u64 work;   // what the kworker on the CPU began last
	__u64 start;  // of the task on the CPU, whose thread id is task.id
	__u64 tgid;   // and its process
	__u64 lost;   // notes that found no room
	struct frame task, soft, hard;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cpu);
} cpus SEC(".maps");

const volatile _Bool v1 = 0; // the cpuset controller is in a cgroup v1 hierarchy
const volatile _Bool several = 0; // CPUs are watched
_Bool recording = 0;
_Bool counting = 0;          // attaching the programs interrupts all CPUs: that is not counted

static __always_inline struct cpu *watched(void) {
	__u32 zero = 0;
	struct cpu *c = bpf_map_lookup_elem(&cpus, &zero);
	return c && c->watched ? c : NULL;
}

static __always_inline __u64 bucket(__u64 ns) {
	__u64 v = ns >> 6, x = v;
	__u64 e = 0; // log2(v)
	if (v < 8)
		return v;
	if (x >> 32)
		return BUCKETS - 1;
	if (x >> 16)
		x >>= 16, e += 16;
	if (x >> 8)
		x >>= 8, e += 8;
	if (x >> 4)
		x >>= 4, e += 4;
	if (x >> 2)
		x >>= 2, e += 2;
	e += x >> 1;
	return (e - 2) * 8 + ((v >> (e - 3)) & 7);
}

// add counts one intrusion, and returns its source.
static __noinline struct source *add(struct cpu *c, struct key *k, __u64 ns) {
	struct source *s = bpf_map_lookup_elem(&sources, k);
	if (!s) {
		__u32 zero = 0;
		struct source *fresh = bpf_map_lookup_elem(&blank, &zero);
		if (fresh)
			bpf_map_update_elem(&sources, k, fresh, BPF_NOEXIST);
		s = bpf_map_lookup_elem(&sources, k);
	}
	if (!s) {
		k->id = REST;
		k->start = k->work = 0;
		s = bpf_map_lookup_elem(&sources, k);
	}
	if (!s) {
		c->missed++;
		return NULL;
	}
	s->count++;
	s->ns += ns;
	if (ns > s->longest)
		s->longest = ns;
	__u64 b = bucket(ns);
	barrier_var(b); // or the compiler compares a copy, and the verifier does not see it
	s->buckets[b < BUCKETS ? b : BUCKETS - 1]++;
	return s;
}

// enter notes the task that has the CPU from now on.
static __always_inline void enter(struct cpu *c, struct task_struct *t) {
	c->start = t->start_boottime;
	c->tgid = t->tgid;
	c->task.id = t->pid;
	c->task.inner = c->inner;
	c->task.since = bpf_ktime_get_ns();
}

// begin and end read the clock and c->inner in an order that an interrupt between the two makes a
// softirq longer by that interrupt: the other one could make it negative.
static __always_inline void begin(struct cpu *c, struct frame *f, __u64 id) {
	if (!c->task.since) // this CPU has not switched yet since the programs were attached
		enter(c, bpf_get_current_task_btf());
	f->id = id;
	f->since = bpf_ktime_get_ns();
	f->inner = *(volatile __u64 *)&c->inner;
}

static __always_inline __u64 end(struct cpu *c, struct frame *f, __u64 *now) {
	__u64 inner = *(volatile __u64 *)&c->inner - f->inner;
	*now = bpf_ktime_get_ns();
	__u64 ns = *now - f->since - inner;
	f->since = 0;
	return ns;
}

static __always_inline void note(struct cpu *c, struct key *k, __u64 begin, __u64 end) {
	if (!recording || (end - begin < LONG && k->kind != OWN))
		return;
	struct note n = {.cpu = k->cpu, .kind = k->kind, .id = k->id, .start = k->start, .begin = begin, .end = end};
	if (bpf_ringbuf_output(&notes, &n, sizeof(n), BPF_RB_NO_WAKEUP))
		c->lost++;
}

// finish ends what begin began; where that is not known, it began before the programs were there.
static __always_inline struct source *finish(struct cpu *c, struct frame *f, __u32 kind, __u64 id) {
	if (!f->since || f->id != id)
		return NULL;
	__u64 since = f->since, now;
	__u64 ns = end(c, f, &now);
	__sync_fetch_and_add(&c->inner, ns); // a softirq can be interrupted right here
	if (!counting)
		return NULL;
	struct key k = {.cpu = bpf_get_smp_processor_id(), .kind = kind, .id = id};
	note(c, &k, since, now);
	return add(c, &k, ns);
}

#define DEPTH 16 // of cgroups that are looked at

// owner returns the id of the task's cgroup, or 0 where it or one above it is a lane's own. cpuset
// is the first of include/linux/cgroup_subsys.h.
static __always_inline __u64 owner(struct task_struct *t) {
	struct cgroup_subsys_state *css = v1 ? t->cgroups->subsys[0] : &t->cgroups->dfl_cgrp->self;
	__u64 leaf = 0;
	for (int i = 0; i < DEPTH && css; i++) {
		__u64 id = css->cgroup->kn->id;
		if (bpf_map_lookup_elem(&own, &id))
			return 0;
		if (!i)
			leaf = id;
		css = css->parent;
	}
	return leaf;
}

static __always_inline void leave(struct cpu *c, struct task_struct *t) {
	static const char symbol[] = "%ps";
	__u64 since = c->task.since, now;
	__u64 ns = end(c, &c->task, &now);
	__u64 cgroup = owner(t);
	if (!counting)
		return;
	struct key k = {
		.cpu = bpf_get_smp_processor_id(), .kind = t->flags & PF_KTHREAD ? KERNEL_THREAD : TASK,
		.id = t->pid, .start = t->start_boottime, .work = c->work,
	};
	if (!cgroup)
		k.kind = OWN;
	if (cgroup || several)
		note(c, &k, since, now);
	if (!cgroup)
		return;
	struct source *s = add(c, &k, ns);
	if (!s || k.id == REST)
		return;
	if (s->count == 1 && k.work)
		bpf_snprintf(s->work, sizeof(s->work), symbol, &k.work, sizeof(k.work));
	s->tgid = t->tgid;
	s->cgroup = cgroup;
	// The task may have moved, renamed itself or become another program since its last run.
	__builtin_memcpy(s->name, t->comm, sizeof(t->comm));
}

SEC("tp_btf/sched_switch")
int BPF_PROG(sched_switch, _Bool preempt, struct task_struct *prev, struct task_struct *next) {
	struct cpu *c = watched();
	if (!c)
		return 0;
	if (prev->pid && c->task.since) // else the idle task
		leave(c, prev);
	c->work = 0;
	c->soft.since = 0; // on PREEMPT_RT a softirq can be preempted: its rest is its thread's
	enter(c, next);
	return 0;
}

SEC("tp_btf/irq_handler_entry")
int BPF_PROG(irq_handler_entry, int irq) {
	struct cpu *c = watched();
	if (c)
		begin(c, &c->hard, irq);
	return 0;
}

SEC("tp_btf/irq_handler_exit")
int BPF_PROG(irq_handler_exit, int irq, struct irqaction *action) {
	struct cpu *c = watched();
	struct source *s = c ? finish(c, &c->hard, INTERRUPT, irq) : NULL;
	if (s && s->count == 1)
		bpf_probe_read_kernel_str(s->name, sizeof(s->name), action->name);
	return 0;
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(softirq_entry, unsigned int vector) {
	struct cpu *c = watched();
	if (c)
		begin(c, &c->soft, vector);
	return 0;
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(softirq_exit, unsigned int vector) {
	struct cpu *c = watched();
	if (c)
		finish(c, &c->soft, SOFTIRQ, vector);
	return 0;
}

// The tracepoints of arch/x86/include/asm/trace/irq_vectors.h.
#define VECTOR(name, kind, id)                                                                     \
	SEC("tp_btf/" #name "_entry")                                                              \
	int BPF_PROG(name##_entry, int vector) {                                                   \
		struct cpu *c = watched();                                                         \
		if (c)                                                                             \
			begin(c, &c->hard, id);                                                    \
		return 0;                                                                          \
	}                                                                                          \
	SEC("tp_btf/" #name "_exit")                                                               \
	int BPF_PROG(name##_exit, int vector) {                                                    \
		struct cpu *c = watched();                                                         \
		if (c)                                                                             \
			finish(c, &c->hard, kind, id);                                             \
		return 0;                                                                          \
	}

VECTOR(local_timer, TICK, 0)
VECTOR(reschedule, IPI, 0)
VECTOR(call_function, IPI, 1)
VECTOR(call_function_single, IPI, 2)
VECTOR(irq_work, IPI, 3)
VECTOR(x86_platform_ipi, IPI, 4)

SEC("tp_btf/tick_stop")
int BPF_PROG(tick_stop, int success, int dependency) {
	struct cpu *c = watched();
	if (c && counting && !success)
		c->tick |= dependency;
	return 0;
}

SEC("tp_btf/workqueue_execute_start")
int BPF_PROG(workqueue_execute_start, struct work_struct *work) {
	struct cpu *c = watched();
	if (c)
		c->work = (__u64)work->func;
	return 0;
}

// The verifier lets only GPL-compatible programs read the kernel's structs.
char _license[] SEC("license") = "Dual MIT/GPL";
