// Command spin runs in pods of tests: it prints what its environment says about a lane, takes hugepages if it
// should, and keeps threads busy, all the time or with pauses, until it is ended.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	hugepages := flag.Int("hugepages", 0, "how many of 2 MiB to take")
	end := flag.Bool("end", false, "end at once")
	rest := flag.Duration("rest", 0, "how long a thread sleeps after each million of steps; 0: never")
	flag.Parse()
	n, err := strconv.Atoi(flag.Arg(0))
	if err != nil || n < 1 {
		fmt.Fprintln(os.Stderr, "spin: expected a number of threads")
		os.Exit(2)
	}
	for _, v := range slices.Sorted(slices.Values(os.Environ())) {
		if strings.HasPrefix(v, "ISOLANE_") {
			fmt.Println(v)
		}
	}
	if *hugepages > 0 {
		take(*hugepages)
	}
	if *end {
		return
	}
	runtime.GOMAXPROCS(n + 1)
	for range n {
		go func() {
			runtime.LockOSThread()
			for x := 1; ; x++ {
				if *rest > 0 && x%1_000_000 == 0 {
					time.Sleep(*rest)
				}
			}
		}()
	}
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM)
	<-asked
}

// take writes to this many hugepages, and keeps them.
func take(pages int) {
	const size = 2 << 20
	memory, err := syscall.Mmap(-1, 0, pages*size, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_PRIVATE|syscall.MAP_ANONYMOUS|syscall.MAP_HUGETLB)
	if err != nil {
		fmt.Println("hugepages:", err)
		return
	}
	for i := 0; i < len(memory); i += size {
		memory[i] = 1
	}
	fmt.Println(pages, "hugepages")
}
