package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"isolane.dev/isolane/change"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/runtime/process"
)

// needCapabilities says what a command lacks that changes the host.
func needCapabilities(command string) error {
	missing, err := process.Missing("DAC_OVERRIDE", "SYS_ADMIN", "SYS_NICE")
	if err != nil {
		return fail(err)
	}
	if len(missing) > 0 {
		return hint(fmt.Errorf("%s changes cpusets, interrupts and tasks: %s missing", command,
			strings.Join(missing, ", ")), sudo())
	}
	return nil
}

// seeing is the error of a command that has nothing to say without the lanes in force.
func seeing(err error) error {
	if errors.Is(err, journal.ErrNeedsRoot) {
		return hint(errors.New("needs root to see the lanes in force"), sudo())
	}
	return fail(err)
}

// sudo is the command line that the user typed, as root.
func sudo() string {
	words := []string{"sudo"}
	for _, a := range os.Args {
		words = append(words, change.Quote(a))
	}
	return strings.Join(words, " ")
}
