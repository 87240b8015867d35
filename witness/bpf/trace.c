// SPDX-License-Identifier: (MIT OR GPL-2.0-only)
// Adds up, in the kernel, what takes the time of CPUs: by source how often, for how long, the longest, and
// a histogram. Nothing is sent out: user space reads the sums from another CPU.
// A CPU is counted (only its tasks) or measured (its interrupts and softirqs as well), from the moment at
// which set_mode runs on it until it runs there again. The loader runs it (BPF_PROG_TEST_RUN of a raw
// tracepoint with a CPU), so the task that is on the CPU then is known, even if it stays all the time.
// While recording is set, each intrusion of some length on a measured CPU also leaves a note with its begin
// and end, and each run of an own task when it was woken; notes are read afterwards and wake nobody.
//
// A time is a source's own: from its first to its last instruction that a tracepoint sees, less what
// interrupted it. So the times of a measured CPU do not overlap, and neither a task nor a softirq is
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

// Steal is what the hypervisor has taken, as of the last update of the run queue's clock: each switch makes one.
struct rq {
	__u64 prev_steal_time_rq;
};

struct cfs_rq {
	struct rq *rq;
};

struct sched_entity {
	struct cfs_rq *cfs_rq;
};

struct task_struct {
	int pid;
	int tgid;
	unsigned int flags;
	__u64 start_boottime;
	struct sched_entity se;
	struct task_struct *group_leader;
	struct task_struct *real_parent;
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
	__u64 start; // of a task: thread ids are used again, start times are not; of an interrupt its handler
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
	__u64 voluntary;   // of the runs of a task, those that it ended by itself
	__u64 involuntary; // and those that another task ended; the end of the count ends a run too
	__u64 process;     // start of the task's process
	__u64 cgroup;
	__u32 tgid;
	__u32 parent; // tgid of the parent when the task first ran: short-lived children keep their line
	__u32 own;
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

// The ids of the cgroups whose tasks are no intruders, nor those of the cgroups below, on CPUs that have the
// same bit of cpu.places.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u64);
	__type(value, __u64);
} own SEC(".maps");

// The loader gives it pages for a recording.
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} notes SEC(".maps");

// OWN is the kind of a note of an own task's run, whatever its length.
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
	__u64 woken;  // of an own task: when somebody began to wake it, 0: it was not asleep
	__u64 stolen; // of the run, by the hypervisor
	__u64 late;   // stolen before it, while the CPU was idle
};

// When own tasks were woken that have not run since, by thread id; 0: they have. A task is there from the end
// of its first run on.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, __u64);
} woken SEC(".maps");

struct frame {
	__u64 since; // 0: nothing runs at this level
	__u64 inner; // what cpu.inner was then
	__u64 id;
};

enum mode { OFF, COUNTED, MEASURED };

#define FETCH 16      // nanoseconds, the width of a bucket of cpu.fetched
#define FETCHES 64    // buckets, of which the last one has no end
#define PAUSE 1000000 // nanoseconds at least between two looks of a CPU at the word

// A word that the CPUs of two sides write in turn, on cache lines of its own: the side that wrote it last.
struct {
	char before[128];
	__u64 side;
	char after[120];
} word = {};

struct cpu {
	__u64 mode;
	__u64 switches;
	__u64 inner;  // time of all interrupts and softirqs so far
	__u64 missed; // what found no room, not even in REST
	__u64 tick;   // why the tick could not stop last: TICK_DEP_MASK_* of include/linux/tick.h
	__u64 work;   // what the kworker on the CPU began last
	__u64 start;  // of the task on the CPU, whose thread id is task.id
	__u64 tgid;   // and its process
	__u64 woken;  // as in its note
	__u64 known;  // it is in the map woken
	__u64 late;
	__u64 stolen; // by the hypervisor, when it came
	__u64 lost;   // notes that found no room
	__u64 places; // as the map own has them
	__u64 stopped; // the tick has, since the CPU idles
	__u64 unlisted; // runs of own tasks for which the map woken has no room
	__u64 side;     // of the word; 0: neither
	__u64 looked;   // when it read the word
	struct frame task, soft, hard;
	__u32 fetched[FETCHES]; // how often the word took so long to come from a CPU of the other side
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cpu);
} cpus SEC(".maps");

const volatile _Bool v1 = 0;       // the cpuset controller is in a cgroup v1 hierarchy
const volatile _Bool keep_own = 0; // own tasks are counted too, and marked
_Bool recording = 0;

static __always_inline struct cpu *this_cpu(enum mode least) {
	__u32 zero = 0;
	struct cpu *c = bpf_map_lookup_elem(&cpus, &zero);
	return c && c->mode >= least ? c : NULL;
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

// room returns the sums of a key, made if need be, or NULL.
static __noinline struct source *room(struct key *k) {
	struct source *s = bpf_map_lookup_elem(&sources, k);
	if (s)
		return s;
	__u32 zero = 0;
	struct source *fresh = bpf_map_lookup_elem(&blank, &zero);
	if (fresh)
		bpf_map_update_elem(&sources, k, fresh, BPF_NOEXIST);
	return bpf_map_lookup_elem(&sources, k);
}

static __always_inline struct source *rest(struct key *k) {
	k->id = REST;
	k->start = k->work = 0;
	return bpf_map_lookup_elem(&sources, k);
}

// add counts one intrusion.
static __always_inline void add(struct cpu *c, struct source *s, __u64 ns) {
	if (!s) {
		c->missed++;
		return;
	}
	s->count++;
	s->ns += ns;
	if (ns > s->longest)
		s->longest = ns;
	if (c->mode != MEASURED)
		return;
	__u64 b = bucket(ns);
	barrier_var(b); // or the compiler compares a copy, and the verifier does not see it
	s->buckets[b < BUCKETS ? b : BUCKETS - 1]++;
}

// fetch reads the word now and then, and counts how long it took to come from a CPU of the other side: what reading
// took, less what reading it again takes. It returns the time, which is the one given if it did nothing.
static __always_inline __u64 fetch(struct cpu *c, __u64 now) {
	if (!c->side || now - c->looked < PAUSE)
		return now;
	c->looked = bpf_ktime_get_ns();
	__u64 last = *(volatile __u64 *)&word.side;
	if (last == c->side) // also keeps the clock from being read before the word is there
		return c->looked;
	__u64 second = bpf_ktime_get_ns();
	if (*(volatile __u64 *)&word.side != last)
		return second;
	__u64 third = bpf_ktime_get_ns();
	*(volatile __u64 *)&word.side = c->side;
	__s64 way = (second - c->looked) - (third - second);
	__u64 b = way < 0 ? 0 : (__u64)way / FETCH;
	barrier_var(b);
	if (last)
		c->fetched[b < FETCHES ? b : FETCHES - 1]++;
	return third;
}

// begin and end read the clock and c->inner in an order that an interrupt between the two makes a
// softirq longer by that interrupt: the other one could make it negative.
static __always_inline void begin(struct cpu *c, struct frame *f, __u64 id) {
	f->id = id;
	f->since = fetch(c, bpf_ktime_get_ns());
	f->inner = *(volatile __u64 *)&c->inner;
}

static __always_inline __u64 end(struct cpu *c, struct frame *f, __u64 *now) {
	__u64 inner = *(volatile __u64 *)&c->inner - f->inner;
	*now = bpf_ktime_get_ns();
	__u64 ns = *now - f->since - inner;
	f->since = 0;
	return ns;
}

static __always_inline void note(struct cpu *c, struct note *n) {
	if (bpf_ringbuf_output(&notes, n, sizeof(*n), BPF_RB_NO_WAKEUP))
		c->lost++;
}

// finish ends what begin began; where that is not known, it began before the CPU was measured.
static __noinline struct source *finish(struct cpu *c, struct frame *f, __u32 kind, __u64 id, __u64 start) {
	if (!f->since || f->id != id)
		return NULL;
	__u64 since = f->since, now;
	__u64 ns = end(c, f, &now);
	__sync_fetch_and_add(&c->inner, ns); // a softirq can be interrupted right here
	struct key k = {.cpu = bpf_get_smp_processor_id(), .kind = kind, .id = id, .start = start};
	if (recording && now - since >= LONG) {
		struct note n = {.cpu = k.cpu, .kind = kind, .id = id, .start = start, .begin = since, .end = now};
		note(c, &n);
	}
	struct source *s = room(&k);
	add(c, s ? s : rest(&k), ns);
	return s;
}

#define DEPTH 16 // of cgroups that are looked at

static __always_inline struct cgroup_subsys_state *cpuset_of(struct task_struct *t) {
	// cpuset is the first of include/linux/cgroup_subsys.h
	return v1 ? t->cgroups->subsys[0] : &t->cgroups->dfl_cgrp->self;
}

// owned says whether a cgroup, or the next one above it that the map has, is the CPU's own.
static __noinline _Bool owned(struct task_struct *t, __u64 places) {
	struct cgroup_subsys_state *css = cpuset_of(t);
	for (int i = 0; i < DEPTH && css; i++) {
		__u64 id = css->cgroup->kn->id;
		__u64 *at = bpf_map_lookup_elem(&own, &id);
		if (at)
			return (*at & places) != 0;
		css = css->parent;
	}
	return 0;
}

enum ending { VOLUNTARY, INVOLUNTARY, COUNT };

// steal is what the hypervisor has taken of the CPU since the machine started; 0: nobody wants to know, or can.
static __always_inline __u64 steal(struct cpu *c, struct task_struct *t) {
	if (!recording || c->mode != MEASURED || !bpf_core_field_exists(struct rq, prev_steal_time_rq) ||
	    !bpf_core_field_exists(struct sched_entity, cfs_rq))
		return 0;
	return t->se.cfs_rq->rq->prev_steal_time_rq;
}

static __always_inline __u64 taken(struct cpu *c, __u64 stolen) {
	return c->stolen && stolen ? stolen - c->stolen : 0;
}

// leave counts the run that a task ends now, with interrupts off. The task may have moved, renamed itself or
// become another program since its last run, so that is kept up to date.
static __always_inline void leave(struct cpu *c, struct task_struct *t, __u64 now, __u64 stolen, enum ending why) {
	static const char symbol[] = "%ps";
	__u64 ns = now - c->task.since - (c->inner - c->task.inner);
	__u64 cgroup = 0;
	struct key k = {
		.cpu = bpf_get_smp_processor_id(), .kind = t->flags & PF_KTHREAD ? KERNEL_THREAD : TASK,
		.id = t->pid, .start = t->start_boottime, .work = c->work,
	};
	struct source *s = bpf_map_lookup_elem(&sources, &k);
	_Bool mine = keep_own;
	if (c->mode == MEASURED) {
		cgroup = cpuset_of(t)->cgroup->kn->id;
		mine = s && s->cgroup == cgroup ? s->own : owned(t, c->places);
	}
	if (recording && c->mode == MEASURED && (mine || now - c->task.since >= LONG)) {
		struct note n = {
			.cpu = k.cpu, .kind = mine ? OWN : k.kind, .id = k.id, .start = k.start, .begin = c->task.since,
			.end = now, .woken = c->woken, .stolen = taken(c, stolen), .late = c->late,
		};
		note(c, &n);
		__u32 tid = t->pid;
		__u64 never = 0;
		if (mine && !c->known && bpf_map_update_elem(&woken, &tid, &never, BPF_ANY))
			c->unlisted++;
	}
	if (mine && !keep_own)
		return;
	if (!s)
		s = room(&k);
	if (!s) {
		add(c, mine ? NULL : rest(&k), ns);
		return;
	}
	if (!s->count) {
		s->process = t->group_leader->start_boottime;
		s->parent = t->real_parent->tgid;
		if (k.work)
			bpf_snprintf(s->work, sizeof(s->work), symbol, &k.work, sizeof(k.work));
	}
	add(c, s, ns);
	s->voluntary += why == VOLUNTARY;
	s->involuntary += why == INVOLUNTARY;
	s->tgid = t->tgid;
	s->cgroup = cgroup;
	s->own = mine;
	__builtin_memcpy(s->name, t->comm, sizeof(t->comm));
}

// enter notes the task that has the CPU from now on.
static __always_inline void enter(struct cpu *c, struct task_struct *t, __u64 now, __u64 stolen) {
	c->start = t->start_boottime;
	c->tgid = t->tgid;
	c->task.id = t->pid;
	c->task.inner = c->inner;
	c->task.since = now;
	c->stolen = stolen;
	c->work = 0;
	c->woken = c->known = 0;
	if (!recording || c->mode != MEASURED || !t->pid)
		return;
	__u32 tid = t->pid;
	__u64 *at = bpf_map_lookup_elem(&woken, &tid);
	if (at) {
		c->known = 1;
		c->woken = *at;
		*at = 0;
	}
}

SEC("tp_btf/sched_switch")
int BPF_PROG(sched_switch, _Bool preempt, struct task_struct *prev, struct task_struct *next, unsigned int state) {
	struct cpu *c = this_cpu(COUNTED);
	if (!c)
		return 0;
	__u64 now = fetch(c, bpf_ktime_get_ns()), stolen = steal(c, prev);
	c->switches++;
	if (prev->pid) { // else the idle task
		leave(c, prev, now, stolen, !preempt && state ? VOLUNTARY : INVOLUNTARY);
		c->late = 0;
	} else {
		c->late = taken(c, stolen);
		if (c->stopped) // or tick_stop had said why not when the CPU ceased to idle
			c->tick = c->stopped = 0;
	}
	c->soft.since = 0; // on PREEMPT_RT a softirq can be preempted: its rest is its thread's
	enter(c, next, now, stolen);
	return 0;
}

SEC("raw_tp")
int set_mode(__u64 *modes) {
	struct cpu *c = this_cpu(OFF);
	struct task_struct *t = bpf_get_current_task_btf();
	if (!c)
		return 0;
	__u64 now = bpf_ktime_get_ns(), stolen = steal(c, t);
	if (c->mode && t->pid)
		leave(c, t, now, stolen, COUNT);
	c->mode = modes[0];
	c->places = modes[1];
	c->side = modes[2];
	c->late = 0;
	enter(c, t, now, steal(c, t));
	return 0;
}

// It runs where the waker is, before the kernel looks for a CPU: what follows is the wake-up's time.
SEC("tp_btf/sched_waking")
int BPF_PROG(sched_waking, struct task_struct *t) {
	if (!recording)
		return 0;
	__u32 tid = t->pid;
	__u64 *at = bpf_map_lookup_elem(&woken, &tid);
	if (at)
		*at = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/irq_handler_entry")
int BPF_PROG(irq_handler_entry, int irq) {
	struct cpu *c = this_cpu(MEASURED);
	if (c)
		begin(c, &c->hard, irq);
	return 0;
}

// On a line that devices share it comes once for the handler of each.
SEC("tp_btf/irq_handler_exit")
int BPF_PROG(irq_handler_exit, int irq, struct irqaction *action) {
	struct cpu *c = this_cpu(MEASURED);
	struct source *s = c ? finish(c, &c->hard, INTERRUPT, irq, (__u64)action) : NULL;
	if (s && s->count == 1)
		bpf_probe_read_kernel_str(s->name, sizeof(s->name), action->name);
	return 0;
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(softirq_entry, unsigned int vector) {
	struct cpu *c = this_cpu(MEASURED);
	if (c)
		begin(c, &c->soft, vector);
	return 0;
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(softirq_exit, unsigned int vector) {
	struct cpu *c = this_cpu(MEASURED);
	if (c)
		finish(c, &c->soft, SOFTIRQ, vector, 0);
	return 0;
}

// The tracepoints of arch/x86/include/asm/trace/irq_vectors.h.
#define VECTOR(name, kind, id)                                                                     \
	SEC("tp_btf/" #name "_entry")                                                              \
	int BPF_PROG(name##_entry, int vector) {                                                   \
		struct cpu *c = this_cpu(MEASURED);                                                         \
		if (c)                                                                             \
			begin(c, &c->hard, id);                                                    \
		return 0;                                                                          \
	}                                                                                          \
	SEC("tp_btf/" #name "_exit")                                                               \
	int BPF_PROG(name##_exit, int vector) {                                                    \
		struct cpu *c = this_cpu(MEASURED);                                                         \
		if (c)                                                                             \
			finish(c, &c->hard, kind, id, 0);                                          \
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
	struct cpu *c = this_cpu(MEASURED);
	if (!c)
		return 0;
	if (!success)
		c->tick = dependency;
	else if (c->task.id)
		c->tick = 0;
	// While the CPU idles it stops whatever it depends on. Nothing tells of it if it stays so beside a task.
	c->stopped = success && !c->task.id;
	return 0;
}

SEC("tp_btf/workqueue_execute_start")
int BPF_PROG(workqueue_execute_start, struct work_struct *work) {
	struct cpu *c = this_cpu(MEASURED);
	if (c)
		c->work = (__u64)work->func;
	return 0;
}

// The verifier lets only GPL-compatible programs read the kernel's structs.
char _license[] SEC("license") = "Dual MIT/GPL";
