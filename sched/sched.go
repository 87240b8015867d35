// Package sched names the scheduling policies of the kernel (sched(7)).
package sched

// Policy is the name of a scheduling policy, as in sched(7) without "SCHED_". "" is unknown.
type Policy string

// The policies. The kernel's headers call Other SCHED_NORMAL.
const (
	Other    Policy = "other"
	FIFO     Policy = "fifo"
	RR       Policy = "rr"
	Batch    Policy = "batch"
	Idle     Policy = "idle"
	Deadline Policy = "deadline"
	Ext      Policy = "ext" // a scheduler in BPF, since Linux 6.12
)

// numbered returns the policies in the order of include/uapi/linux/sched.h, where 4 is reserved.
func numbered() []Policy { return []Policy{Other, FIFO, RR, Batch, "", Idle, Deadline, Ext} }

// Numbered returns the policy with a number, as in /proc/PID/stat and struct sched_attr; "" if it is unknown.
func Numbered(number uint64) Policy {
	if all := numbered(); number < uint64(len(all)) {
		return all[number]
	}
	return ""
}

// Number returns the number of a policy; false if the policy is unknown.
func (p Policy) Number() (uint32, bool) {
	for number, known := range numbered() {
		if known == p && p != "" {
			return uint32(number), true
		}
	}
	return 0, false
}

// IsRealTime reports whether threads of this policy have a fixed priority, from 1 to 99, above all threads of
// other policies except deadline.
func (p Policy) IsRealTime() bool { return p == FIFO || p == RR }
