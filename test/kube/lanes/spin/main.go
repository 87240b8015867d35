// Command spin is what pods of tests run: it prints what its environment says of a lane, and keeps so many
// threads busy until it is ended.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

func main() {
	n, err := strconv.Atoi(os.Args[len(os.Args)-1])
	if err != nil || n < 1 {
		fmt.Fprintln(os.Stderr, "spin: expected a number of threads")
		os.Exit(2)
	}
	for _, v := range slices.Sorted(slices.Values(os.Environ())) {
		if strings.HasPrefix(v, "ISOLANE_") {
			fmt.Println(v)
		}
	}
	runtime.GOMAXPROCS(n + 1)
	for range n {
		go func() {
			runtime.LockOSThread()
			for x := 1; ; x *= 3 {
				_ = x
			}
		}()
	}
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM)
	<-end
}
