int absolute(int number) {
  if (number < 0) {
    return -number;
  }
  return number;
}

int main() {
  return absolute(0);
}
