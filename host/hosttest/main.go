package hosttest

import (
	"fmt"
	"os"
	"runtime"
)

// Main is for the TestMain of a package whose tests start their own binary again as another program. Each
// program decides by its arguments or environment whether it is meant. Main runs the one that is, else the
// tests, and ends the process.
func Main(tests interface{ Run() int }, programs ...func() (ran bool, err error)) {
	for _, program := range programs {
		ran, err := program()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		if ran {
			os.Exit(0)
		}
	}
	// Tests that pin their thread lock it to their goroutine, and Go ends it with the goroutine, except the main
	// thread. That one would stay pinned, and later tests would see a process that may use only one CPU.
	runtime.LockOSThread()
	os.Exit(tests.Run())
}
