// Package sched names the scheduling policies of the kernel (sched(7)).
package sched

// Policy is the name of a scheduling policy, as in sched(7) without "SCHED_". The empty one is not known.
type Policy string

// The policies. The kernel's headers call Other SCHED_NORMAL.
const (
	Other    Policy = "other"
	FIFO     Policy = "fifo"
	RR       Policy = "rr"
	Batch    Policy = "batch"
	Idle     Policy = "idle"
	Deadline Policy = "deadline"
	Ext      Policy = "ext" // of a scheduler in BPF, since Linux 6.12
)

// numbered is in the order of include/uapi/linux/sched.h; 4 is reserved there.
func numbered() []Policy { return []Policy{Other, FIFO, RR, Batch, "", Idle, Deadline, Ext} }

// Numbered returns the policy with a number, as in /proc/PID/stat and struct sched_attr; "" where it is not
// known.
func Numbered(number uint64) Policy {
	if all := numbered(); number < uint64(len(all)) {
		return all[number]
	}
	return ""
}

// Number is that of a policy; false where it is not known.
func (p Policy) Number() (uint32, bool) {
	for number, known := range numbered() {
		if known == p && p != "" {
			return uint32(number), true
		}
	}
	return 0, false
}

// IsRealTime says whether threads of this policy have a fixed priority, from 1 to 99, above all threads of
// other policies than deadline.
func (p Policy) IsRealTime() bool { return p == FIFO || p == RR }
