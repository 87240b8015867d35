package hosttest

import (
	"fmt"
	"os"
	"runtime"
)

// Main is for TestMain of a package whose tests start their own binary again, as another program. Each
// program finds out by its arguments or environment whether it is meant. Main runs the one that is, else
// the tests, and ends the process.
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
	// Tests that pin their thread lock it, and Go ends a locked thread with its goroutine, except the main one.
	// That one would stay pinned, and the tests after it would see a process that may use one CPU only.
	runtime.LockOSThread()
	os.Exit(tests.Run())
}
