from knnmt.cli import main

main()
