// Empty: lets the compiler take the declaration of procPin, whose body is in the runtime.
