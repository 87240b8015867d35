package results

// The kinds of sources.
const (
	Task         = "task"
	KernelThread = "kernel thread"
	Interrupt    = "interrupt"
	Softirq      = "softirq"
	IPI          = "ipi"  // an interrupt that another CPU sends
	Tick         = "tick" // the local timer: the scheduler's tick, and timers that programs set
	Steal        = "steal"
)

// Names of sources that have none of their own.
const (
	Hypervisor = "hypervisor"
	Others     = "others" // those beyond the bound, together
)

// The roles of measured threads.
const (
	Application = "application"
	Client      = "client"
	Outside     = "outside" // what clients behind the application ask, or a program at their end of the wire
)
