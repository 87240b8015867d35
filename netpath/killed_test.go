package netpath_test

import (
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"isolane.dev/isolane/host/hosttest"
)

// every is for more kills than a run of all tests has time for: go test ./netpath -run TakenBack -every 1.
var every = flag.Int("every", 8, "programs that put lanes in force are killed at each system call of that many that change something")

// everyChange is for fewer kills where a switch is slow, as in the lab.
var everyChange = flag.Int("every-change", 1, "programs that put lanes in force are killed at each change of a switch of that many")

// killer has another process put lanes in force, and kills it once it has made changes to a number. It says whether
// it was killed: not where it made fewer.
type killer func(at int, w wanted) bool

// byTools kills with a change by a tool of a switch.
func byTools(t *testing.T, tools []string) killer {
	t.Helper()
	dir := t.TempDir()
	number, limit := filepath.Join(dir, "number"), filepath.Join(dir, "limit")
	for _, tool := range tools {
		replaced(t, dir, tool, number, limit)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return func(at int, w wanted) bool {
		for file, n := range map[string]int{number: 0, limit: at} {
			if err := os.WriteFile(file, strconv.AppendInt(nil, int64(n), 10), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		defer os.Remove(limit)
		return w.killed(t, -1, nil)
	}
}

// byCalls kills with a system call that changes something, or may: by netlink, in files, namespaces and eBPF.
func byCalls(t *testing.T) killer {
	t.Helper()
	hosttest.Need(t, hosttest.Root, hosttest.BPF)
	if runtime.GOARCH != "amd64" {
		t.Skip("skipped: knows the registers of system calls of x86-64 only")
	}
	state, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 12, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = state.Close() })
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.RawTracepoint, License: "GPL", Instructions: counting(state)})
	if err != nil {
		t.Fatal(err)
	}
	defer prog.Close()
	on, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: "sys_enter", Program: prog})
	if err != nil {
		t.Skip("skipped: needs the tracepoint sys_enter: ", err)
	}
	t.Cleanup(func() { _ = on.Close() })
	return func(at int, w wanted) bool {
		return w.killed(t, -1, func(pid int) {
			if err := state.Put(uint32(0), [3]uint32{uint32(pid), uint32(at)}); err != nil {
				t.Error(err)
			}
		})
	}
}

// counting is a program for each system call: the map has the process that is meant, the change with which it is to be
// killed, and how many it has begun. The kernel ends the call before the process, or does not begin it.
func counting(state *ebpf.Map) asm.Instructions {
	const rsi, rdx = 13 * 8, 12 * 8 // in struct pt_regs of x86-64
	const pid, limit, count = 0, 4, 8
	all := asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1), // struct bpf_raw_tracepoint_args: registers, number
		asm.FnGetCurrentPidTgid.Call(),
		asm.RSh.Imm(asm.R0, 32),
		asm.Mov.Reg(asm.R7, asm.R0),
		asm.StoreImm(asm.RFP, -4, 0, asm.Word),
		asm.LoadMapPtr(asm.R1, state.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "out"),
		asm.Mov.Reg(asm.R8, asm.R0),
		asm.LoadMem(asm.R1, asm.R8, pid, asm.Word),
		asm.JNE.Reg(asm.R1, asm.R7, "out"),
		asm.LoadMem(asm.R9, asm.R6, 8, asm.DWord),
	}
	for _, call := range []int32{unix.SYS_WRITE, unix.SYS_MKDIRAT, unix.SYS_UNLINKAT, unix.SYS_RENAMEAT, unix.SYS_MOUNT,
		unix.SYS_UMOUNT2, unix.SYS_UNSHARE, unix.SYS_IOCTL, unix.SYS_BPF} {
		all = append(all, asm.JEq.Imm(asm.R9, call, "change"))
	}
	// read has a register of the call, then what it points to, in R1.
	register := func(offset int32) asm.Instructions {
		return asm.Instructions{
			asm.LoadMem(asm.R3, asm.R6, 0, asm.DWord),
			asm.Add.Imm(asm.R3, offset),
			asm.Mov.Reg(asm.R1, asm.RFP),
			asm.Add.Imm(asm.R1, -16),
			asm.Mov.Imm(asm.R2, 8),
			asm.FnProbeReadKernel.Call(),
		}
	}
	all = append(all,
		asm.JEq.Imm(asm.R9, unix.SYS_SENDTO, "message"),
		asm.JNE.Imm(asm.R9, unix.SYS_OPENAT, "out"))
	all = append(all, register(rdx)...)
	all = append(all,
		asm.LoadMem(asm.R1, asm.RFP, -16, asm.DWord),
		asm.And.Imm(asm.R1, unix.O_CREAT),
		asm.JEq.Imm(asm.R1, 0, "out"),
		asm.Ja.Label("change"))
	message := register(rsi)
	message[0] = message[0].WithSymbol("message")
	all = append(append(all, message...),
		asm.LoadMem(asm.R3, asm.RFP, -16, asm.DWord),
		asm.Mov.Reg(asm.R1, asm.RFP),
		asm.Add.Imm(asm.R1, -24),
		asm.Mov.Imm(asm.R2, 8), // the length and type of a message, rtnetlink(7)
		asm.FnProbeReadUser.Call(),
		asm.LoadMem(asm.R1, asm.RFP, -20, asm.Half),
		asm.And.Imm(asm.R1, 3),
		asm.JEq.Imm(asm.R1, unix.RTM_GETLINK&3, "out"), // all that only ask
		asm.LoadMem(asm.R1, asm.R8, count, asm.Word).WithSymbol("change"),
		asm.Add.Imm(asm.R1, 1),
		asm.StoreMem(asm.R8, count, asm.R1, asm.Word),
		asm.LoadMem(asm.R2, asm.R8, limit, asm.Word),
		asm.JNE.Reg(asm.R1, asm.R2, "out"),
		asm.Mov.Imm(asm.R1, int32(unix.SIGKILL)),
		asm.FnSendSignal.Call(),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("out"),
		asm.Return())
	return all
}

// phase is where kills at each of so many changes begin, so that runs of many machines meet each change.
func phase(each int) int { return 1 + rand.IntN(max(1, each)) }
